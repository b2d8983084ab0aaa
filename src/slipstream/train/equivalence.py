"""Whether a step is the same step: its loss, gradients, updates and buffers against those of double
precision, beside the errors of the step as it is written.

Judged is the error and not the difference from the step as written, which may be the worse of the
two. Gradients jump where the input of a ReLU is about zero: rounding alone may turn a unit on or
off for one sample, and move a gradient by a thousandth. A step therefore has to be right to the
last bits for one batch at least, and nearly right for all. With fewer bits many units jump; the
yardstick is then what the step as written does when its parameters and inputs are changed by as
much as these bits round. The update is judged by itself, with gradients that are the same for all:
an optimizer may make much of a gradient that is nothing but rounding.
"""

import math
from dataclasses import dataclass

import torch

from slipstream.train.reference import Moment, Reference, Result, Tensors, result_of
from slipstream.train.step import TrainStep

_TIMES_FEW = 5.0  # of one parameter: errors of few numbers scatter
_LOSS = 2.0**-18
_LOSS_MIXED = 0.02
_COSINE = 0.9  # of the whole gradient, with fewer bits
_COSINE_PART = 0.5  # of one parameter
_SMALL = 1e-3  # of the whole gradient: a parameter that hardly counts
_UPDATE = 2.0**-10  # of what an update changes
_ROUNDING = 2.0**-22  # of a parameter
_BUFFER = 2.0**-14
_BUFFER_MIXED = 0.02


@dataclass(frozen=True)
class _Allowed:
    """`times` what rounding does, and shares: `whole` of the whole gradient; of one parameter
    `part` of its own, and `rest` of the whole one, where its own is nothing but rounding.
    """

    times: float
    whole: float
    part: float
    rest: float


_TIGHT = _Allowed(2.0, 2.0**-16, 2.0**-13, 2.0**-18)  # what another order of sums may do
_LOOSE = _Allowed(2.0, 0.01, 0.05, 0.01)  # what a few units that jump may do
_MIXED = _Allowed(3.0, 0.004, 0.02, 0.004)
_MIXED_LOOSE = _Allowed(3.0, 0.05, 0.2, 0.02)


@dataclass(frozen=True)
class Error:
    """Of the gradient, as a share of its size; the worst of all batches."""

    share: float = 0.0
    own: float = 0.0  # what rounding does
    cosine: float = 1.0


def equivalence(
    step: TrainStep, reference: Reference, *, jumps: bool = False
) -> tuple[str | None, Error]:
    """Why it is another step, or None; and how large its errors are. The step has a model and an
    optimizer as they were when the reference was made, and changes both. `jumps`: units may turn
    on or off in all batches, as there are few.
    """
    worst = Error()
    departures: list[str | None] = []
    is_mixed = step.choices.precision is not None
    rows = zip(reference.moments, reference.own(step.choices.precision), strict=True)
    for moment, own in rows:
        found = result_of(step, moment)
        errors = _Errors(found, own, moment.right)
        worst = errors.worse_than(worst)
        why = (
            _not_finite(found, reference.names)
            or _judge_loss(found, own, moment.right, _LOSS_MIXED if is_mixed else _LOSS)
            or errors.judge(reference.names, is_mixed=is_mixed)
            or _judge_update(found.after, own.after, moment, reference.names)
            or _judge_buffers(found.buffers, own.buffers, moment, reference.buffer_names, is_mixed)
        )
        if why is not None:
            return why, worst
        tight = _MIXED if is_mixed else _TIGHT
        departures.append(None if jumps else errors.departure(reference.names, tight))
    return (None if None in departures else departures[0]), worst


class _Errors:
    """Distances of gradients from what is right: of the step, and of what rounding does."""

    def __init__(self, found: Result, own: Result, right: Result) -> None:
        gradients = zip(found.gradients, own.gradients, right.gradients, strict=True)
        self._rows = rows = [_distances(*each) for each in gradients]
        self._size = math.sqrt(sum(row.size**2 for row in rows)) or 1.0
        self.share = math.sqrt(sum(row.error**2 for row in rows)) / self._size
        self.own = math.sqrt(sum(row.own**2 for row in rows)) / self._size
        length = math.sqrt(sum(row.length**2 for row in rows)) or 1.0
        self.cosine = sum(row.product for row in rows) / (self._size * length)

    def worse_than(self, other: Error) -> Error:
        return Error(
            max(other.share, self.share),
            max(other.own, self.own),
            min(other.cosine, self.cosine),
        )

    def judge(self, names: tuple[str, ...], *, is_mixed: bool) -> str | None:
        if not is_mixed:
            return self.departure(names, _LOOSE)
        if not self.cosine >= _COSINE:
            return f"its gradient points elsewhere: cosine {self.cosine:.3f}, below {_COSINE}"
        for name, row in zip(names, self._rows, strict=True):
            counts = row.size >= _SMALL * self._size
            if counts and not row.product >= _COSINE_PART * row.size * row.length:
                return f"the gradient of {name} points elsewhere"
        return self.departure(names, _MIXED_LOOSE)

    def departure(self, names: tuple[str, ...], allowed: _Allowed) -> str | None:
        """Where an error is larger than that of rounding and what is allowed beside."""
        if not self.share <= allowed.times * self.own + allowed.whole:
            return f"its gradient is off by {_times(self.share, self.own)}"
        for name, row in zip(names, self._rows, strict=True):
            rest = allowed.part * row.size + allowed.rest * self._size
            if not row.error <= _TIMES_FEW * row.own + rest:
                return f"the gradient of {name} is off by {row.off}"
        return None


@dataclass(frozen=True)
class _Row:
    """Of one parameter: lengths of vectors."""

    error: float
    own: float
    size: float  # of what is right
    length: float
    product: float

    @property
    def off(self) -> str:
        size = self.size or 1.0
        return _times(self.error / size, self.own / size)


def _distances(
    gradient: torch.Tensor | None, own: torch.Tensor | None, right: torch.Tensor | None
) -> _Row:
    """No gradient counts as zeros here: what an optimizer makes of the difference, the update
    shows.
    """
    some = next((one for one in (right, gradient, own) if one is not None), None)
    if some is None:
        return _Row(0.0, 0.0, 0.0, 0.0, 0.0)
    one, other, exact = (
        torch.zeros_like(some, dtype=torch.float64) if each is None else each.double()
        for each in (gradient, own, right)
    )
    return _Row(
        float((one - exact).norm()), float((other - exact).norm()), float(exact.norm()),
        float(one.norm()), float((one * exact).sum()),
    )  # fmt: skip


def _not_finite(found: Result, names: tuple[str, ...]) -> str | None:
    if not math.isfinite(found.loss):
        return f"its loss is {found.loss}"
    for name, gradient in zip(names, found.gradients, strict=True):
        if gradient is not None and not bool(gradient.isfinite().all()):
            bad = int((~gradient.isfinite()).sum())
            return f"{bad} of {gradient.numel()} values in the gradient of {name} are no numbers"
    return None


def _judge_loss(found: Result, own: Result, right: Result, share: float) -> str | None:
    error, its = abs(found.loss - right.loss), abs(own.loss - right.loss)
    if error <= _TIMES_FEW * its + share * max(abs(right.loss), 1e-6):
        return None
    return f"its loss is {found.loss:.6g}, and {right.loss:.6g} is right"


def _judge_update(
    after: Tensors, own: Tensors, moment: Moment, names: tuple[str, ...]
) -> str | None:
    before = moment.before[: len(after)]
    rows = zip(names, after, own, moment.right.after, before, strict=True)
    for name, tensor, plain, right, start in rows:
        exact = right.double()
        error, its = (float((one.double() - exact).norm()) for one in (tensor, plain))
        change = float((exact - start.double()).norm())
        if not error <= _TIMES_FEW * its + _UPDATE * change + _ROUNDING * float(exact.norm()):
            share = f"{error / change:.1e} of the change" if change else f"{error:.1e}"
            return f"from the same gradients, {name} is updated otherwise: off by {share}"
    return None


def _judge_buffers(
    buffers: Tensors, own: Tensors, moment: Moment, names: tuple[str, ...], is_mixed: bool
) -> str | None:
    eager, right = moment.eager.buffers, moment.right.buffers
    for name, tensor, plain, its, exact in zip(names, buffers, eager, own, right, strict=True):
        if not tensor.is_floating_point():
            if not torch.equal(tensor, plain):
                return f"the buffer {name} is another"
            continue
        error, other = (float((one.double() - exact.double()).norm()) for one in (tensor, its))
        size = float(exact.double().norm())
        share = _BUFFER_MIXED if is_mixed else _BUFFER
        if not error <= _TIMES_FEW * other + share * size:
            return f"the buffer {name} is off by {error / (size or 1.0):.1e} of its size"
    return None


def _times(error: float, own: float) -> str:
    if own > 0:
        return f"{error:.1e} of its size, {error / own:,.0f} times what rounding does"
    return f"{error:.1e} of its size, where rounding does nothing"
