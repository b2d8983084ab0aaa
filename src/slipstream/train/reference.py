"""What is right for a training step: losses, gradients and updates of the step as it is written,
and of the same step in double precision.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.leaves import as_double, changed
from slipstream.rng import Rng, seed_all
from slipstream.train.choices import Precision
from slipstream.train.step import TrainStep
from slipstream.train.subject import Subject

_OTHER_NUMBERS = 1e-3  # of the gradient: more than rounding
_SCALES = 10  # to try until nothing overflows
# One in the last place; float32 for None. TF32 has as many places as float16.
_UNITS = {None: 2.0**-23, "tf32": 2.0**-11, "bf16": 2.0**-8, "fp16": 2.0**-11}

Tensors = list[torch.Tensor]
Gradients = list[torch.Tensor | None]


@dataclass(frozen=True)
class Result:
    """Of one step: the loss, gradients, and what the model holds behind the update."""

    loss: float
    gradients: Gradients
    after: Tensors
    buffers: Tensors


@dataclass(frozen=True)
class Moment:
    """One step, from `before`. `eager` is the step as written, and `right` the one in double
    precision, with the gradients of `eager` in its update; without double precision it is `eager`.
    """

    batch: Any
    seed: int
    before: Tensors
    eager: Result
    right: Result


@dataclass(frozen=True)
class Reference:
    """`draws`: whether the step takes random numbers."""

    subject: Subject
    moments: tuple[Moment, ...]
    draws: bool
    _own: dict[str | None, list[Result]] = field(default_factory=dict)

    @property
    def is_double(self) -> bool:
        """Whether there is double precision to compare with."""
        return all(moment.right is not moment.eager for moment in self.moments)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of parameters."""
        return tuple(name for name, _ in self.subject.model.named_parameters())

    @cached_property
    def buffer_names(self) -> tuple[str, ...]:
        """Of buffers."""
        return tuple(name for name, _ in self.subject.model.named_buffers())

    def own(self, precision: Precision | None) -> list[Result]:
        """For each moment a result that is as far from what is right as rounding may lead: the
        step as written, or, where there is nothing better than that or where a precision has
        fewer bits, the step from numbers that are changed by about one unit in their last place.
        """
        if precision is None and self.is_double:
            return [moment.eager for moment in self.moments]
        if precision not in self._own:
            self._own[precision] = [
                _nudged(self.subject, moment, _UNITS[precision]) for moment in self.moments
            ]
        return self._own[precision]


def reference_of(subject: Subject) -> Reference:
    """Train for some steps, as written and in double precision."""
    eager, double = subject.build(subject.written), _double(subject)
    moments = []
    draws = False
    for seed, batch in enumerate(subject.checked):
        before = values_of(eager.model)
        seed_all(seed)
        fresh = Rng()
        loss, gradients = gradients_of(eager, batch, seed)
        draws = draws or Rng() != fresh
        updated(eager, gradients)
        found = Result(loss, gradients, _parameters(eager.model), _buffers(eager.model))
        right = _exactly(double, before, batch, seed, gradients) if double else None
        if right is not None and draws and _apart(found, right) > _OTHER_NUMBERS:
            right = double = None  # double precision draws other random numbers
        moments.append(Moment(batch, seed, before, found, right or found))
    return Reference(subject, tuple(moments), draws)


@torch.no_grad()
def nudge(model: nn.Module, seed: int, unit: float = _UNITS[None]) -> None:
    """Change each parameter by lot, by at most `unit` of its size; by one unit in the last place
    where nothing is said.
    """
    own = torch.Generator().manual_seed(seed)
    for tensor in model.parameters():
        tensor.copy_(_nudged_tensor(tensor, own, unit))


def _nudged_tensor(tensor: torch.Tensor, own: torch.Generator, unit: float) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    lot = torch.rand(tensor.shape, generator=own).to(tensor.device, tensor.dtype)
    return tensor.detach() * (1 + unit * (2 * lot - 1))


def gradients_of(step: TrainStep, batch: Any, seed: int) -> tuple[float, Gradients]:
    """Loss and unscaled gradients of the model as it stands; its buffers change."""
    before = values_of(step.model) if step.scaler else []
    for _ in range(_SCALES):
        seed_all(seed)
        loss = float(step.backward(batch))
        if step.scaler is None:
            break
        step.scaler.unscale_(step.optimizer)
        step.scaler.update()  # a smaller scale after an overflow
        if all(bool(g.isfinite().all()) for g in _gradients(step.model) if g is not None):
            break
        load(step.model, before)
    found = _gradients(step.model)
    if any(g is not None and g.layout is not torch.strided for g in found):
        raise UsageError("A gradient is sparse; expected dense ones, as with sparse=False.")
    return loss, [None if g is None else g.detach().clone() for g in found]


@torch.no_grad()
def updated(step: TrainStep, gradients: Gradients) -> None:
    """Make the second half of a step with these gradients, laid as the step's own are."""
    scale = step.scaler.get_scale() if step.scaler else 1.0
    for parameter, gradient in zip(step.model.parameters(), gradients, strict=True):
        if gradient is None:
            continue  # zeros of its own stay: an optimizer may make something of them
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.copy_(gradient).mul_(scale)
    step.update()


@torch.no_grad()
def load(model: nn.Module, values: Tensors) -> None:
    """Put values into a model, parameters first, whatever their type."""
    own: Tensors = [*model.parameters(), *model.buffers()]
    for tensor, value in zip(own, values, strict=True):
        tensor.copy_(value)


def values_of(model: nn.Module) -> Tensors:
    """Copies of parameters and buffers."""
    return [*_parameters(model), *_buffers(model)]


def result_of(step: TrainStep, moment: Moment) -> Result:
    """A step from the same start, with the same random numbers; its update is made with the
    gradients of the step as written.
    """
    load(step.model, moment.before)
    loss, gradients = gradients_of(step, moment.batch, moment.seed)
    updated(step, moment.eager.gradients)
    return Result(loss, gradients, _parameters(step.model), _buffers(step.model))


def _double(subject: Subject) -> TrainStep | None:
    try:
        return subject.build_double()
    except Exception:  # whatever has no double precision, or no room for it
        return None


def _exactly(
    step: TrainStep, before: Tensors, batch: Any, seed: int, gradients: Gradients
) -> Result | None:
    try:
        load(step.model, before)
        loss, exact = gradients_of(step, as_double(batch), seed)
        updated(step, gradients)
        return Result(loss, exact, _parameters(step.model), _buffers(step.model))
    except Exception:
        return None


def _nudged(subject: Subject, moment: Moment, unit: float) -> Result:
    step = subject.build(subject.written)
    load(step.model, moment.before)
    nudge(step.model, moment.seed, unit)
    own = torch.Generator().manual_seed(moment.seed)
    batch = changed(moment.batch, lambda tensor: _nudged_tensor(tensor, own, unit))
    loss, gradients = gradients_of(step, batch, moment.seed)
    return Result(loss, gradients, moment.eager.after, _buffers(step.model))


def _apart(found: Result, right: Result) -> float:
    """As a share of the whole gradient."""
    apart = size = 0.0
    for one, other in zip(found.gradients, right.gradients, strict=True):
        if one is not None and other is not None:
            apart += float((one.double() - other.double()).square().sum())
            size += float(other.double().square().sum())
    return float((apart / size) ** 0.5) if size else 0.0


def _parameters(model: nn.Module) -> Tensors:
    return [tensor.detach().clone() for tensor in model.parameters()]


def _buffers(model: nn.Module) -> Tensors:
    return [tensor.detach().clone() for tensor in model.buffers()]


def _gradients(model: nn.Module) -> Gradients:
    return [tensor.grad for tensor in model.parameters()]
