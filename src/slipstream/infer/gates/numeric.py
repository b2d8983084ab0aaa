"""Whether a variant computes the same: its error against double precision, beside that of the model
as it is. What is judged is the error and not the difference from the model, which may be the worse
of the two.
"""

from dataclasses import dataclass
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer.change import Kind
from slipstream.infer.gates.columns import fault_in_a_column
from slipstream.infer.gates.reference import Answer, Reference, ask
from slipstream.infer.leaves import tensors_of
from slipstream.infer.quiet import first_line

_TIMES = 2.0  # the error of the model itself
_FLOOR = 2.0**-20  # of the size of a result: what another order of sums may do
_TIMES_LARGEST = 10.0
_LARGEST_FLOOR = 2.0**-15
_OF_DOUBLE = 2.0**-29  # of these two, for numbers of 64 bits: so much finer they are
_MIXED = 0.03  # of the size of a result: 30 dB
_UNLIKE = 0.1  # of the size of a result: more than rounding does to a model
_MASKED, _LEAST_MASKED = 1e3, 1e3  # times the middle of all values; put in, not computed
_CLEAR = 4.0  # errors: how far the greatest of a row is from the next, where it must stay


@dataclass(frozen=True)
class Error:
    """Of one variant, over all answers; as shares of the size of what is right."""

    rms: float = 0.0
    eager_rms: float = 0.0
    agreement: float | None = None  # share of rows whose greatest value is in the same place


def numeric(model: Any, reference: Reference, kind: Kind) -> tuple[str | None, Error]:
    """Why it fails, and how large its errors are. For a lossy variant only the latter: it is the
    task that decides.
    """
    worst, why = Error(), None
    rows = same = 0
    for answer in (*reference.answers, *reference.others):
        result = ask(model, answer.inputs)
        right = answer.eager if answer.exact is None else answer.exact
        triples = zip(_numbers(result), _numbers(answer.eager), _numbers(right), strict=True)
        for tensor, eager, exact in triples:
            if not tensor.is_floating_point():
                if kind != "lossy" and not _are_equal(tensor, eager, exact):
                    why = why or "whole numbers in its results are others"
                continue
            if kind != "lossy" and not _are_alike_where_not_finite(tensor, eager):
                why = why or "infinities or NaN in its results are elsewhere"
            one, other = _apart(tensor, eager, exact if answer.exact is not None else None)
            of_floor = _OF_DOUBLE if _is_double(eager, other) else 1.0
            why = why or _judge(one, other, kind, of_floor)
            if (kept := _without_masked(exact)) is not None:
                parts = (each[kept] for each in (tensor, eager, exact))
                why = why or _judge(*_apart(*parts), kind, of_floor)
            if other is not None:
                why = why or fault_in_a_column(tensor, eager, exact, kind)
            worst = Error(
                max(worst.rms, one.share), max(worst.eager_rms, other.share if other else 0)
            )
            if exact.dim() > 1 and exact.shape[-1] > 1:
                found, clear = _rows(tensor, eager if other is None else exact, one.rms)
                rows, same = rows + found.numel(), same + int(found.sum())
                if kind == "mixed" and not bool(found[clear].all()):
                    why = why or "the greatest value of a row that is clear is another"
    return why, Error(worst.rms, worst.eager_rms, same / rows if rows else None)


def _numbers(result: Any) -> list[torch.Tensor]:
    """Its tensors, complex ones as pairs."""
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
            for t in tensors_of(result)]  # fmt: skip


def _are_alike_where_not_finite(tensor: torch.Tensor, eager: torch.Tensor) -> bool:
    odd = ~torch.isfinite(eager)
    if not bool(odd.any()):
        return True  # one that is not finite where the model is has failed its contract
    one, other = tensor[odd], eager[odd]
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


class _Apart:
    """How far a tensor is from what is right, where that is finite."""

    def __init__(self, tensor: torch.Tensor, exact: torch.Tensor) -> None:
        finite = torch.isfinite(exact)
        right = exact.double()[finite]
        apart = (tensor.double()[finite] - right).abs()
        self.rms = float(apart.square().mean().sqrt()) if apart.numel() else 0.0
        self.most = float(apart.max()) if apart.numel() else 0.0
        self.size = float(right.square().mean().sqrt()) if apart.numel() else 0.0
        self.largest = float(right.abs().max()) if apart.numel() else 0.0

    @property
    def share(self) -> float:
        return self.rms / self.size if self.size else self.rms


def _apart(
    tensor: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None
) -> tuple[_Apart, _Apart | None]:
    """A variant and the model from what is right. Where double precision is no measure, as it draws
    other numbers or errors grow, that is the model itself.
    """
    own = None if exact is None else _Apart(eager, exact)
    if exact is None or own is None or own.share > _UNLIKE:
        return _Apart(tensor, eager), None
    return _Apart(tensor, exact), own


def _without_masked(exact: torch.Tensor) -> torch.Tensor | None:
    """What is left without values that a mask has put in, which are so large that no error beside
    them would show; None where there are none.
    """
    sizes = exact.double().abs()
    middle = sizes[torch.isfinite(sizes) & (sizes > 0)]
    if not middle.numel():
        return None
    masked = (sizes > _MASKED * middle.median()) & (sizes >= _LEAST_MASKED)
    return ~masked if bool(masked.any()) else None


def _is_double(eager: torch.Tensor, own: _Apart | None) -> bool:
    """Whether the model itself computes in double precision, not only gives its results so."""
    return eager.dtype == torch.float64 and own is not None and own.share < _FLOOR * _OF_DOUBLE


def _judge(one: _Apart, eager: _Apart | None, kind: Kind, of_floor: float) -> str | None:
    if kind == "lossy":
        return None
    if kind == "mixed":
        if one.share <= _MIXED:
            return None
        return f"its error is {one.share:.1%} of the result, more than {_MIXED:.0%}"
    # Without double precision the model itself is what is right, and its own error not known.
    floor = of_floor * (_FLOOR if eager is not None else 16 * _FLOOR)
    allowed = (_TIMES * eager.rms if eager else 0.0) + floor * one.size
    if not one.rms <= allowed:
        return f"its error is {_times(one.rms, eager.rms if eager else 0.0)}"
    largest = of_floor * _LARGEST_FLOOR * one.largest
    largest += _TIMES_LARGEST * eager.most if eager else 0.0
    if not one.most <= largest:
        return f"its largest error is {_times(one.most, eager.most if eager else 0.0)}"
    return None


def _times(error: float, eager: float) -> str:
    if eager > 0:
        return f"{error:.1e}, {error / eager:,.0f} times that of the model itself"
    return f"{error:.1e}; the model itself has none"


def _are_equal(tensor: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> bool:
    return torch.equal(tensor, eager) or torch.equal(tensor, exact.to(tensor.dtype))


def _rows(
    tensor: torch.Tensor, exact: torch.Tensor, error: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row: whether the greatest value is in the same place, and whether that is clear."""
    best = exact.double().topk(2, dim=-1).values
    clear = best[..., 0] - best[..., 1] > _CLEAR * error
    return tensor.argmax(-1) == exact.argmax(-1), clear


def is_repeatable(answer: Answer, model: Any) -> bool:
    """Whether the model itself gives the same twice. Raises `UsageError` for tensors that torch
    cannot compare.
    """
    pairs = zip(tensors_of(ask(model, answer.inputs)), tensors_of(answer.eager), strict=True)
    try:
        return all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs)
    except RuntimeError as error:  # sparse or quantized ones
        raise UsageError(f"Results of the model cannot be compared: {first_line(error)}") from error
