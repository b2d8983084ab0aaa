"""What is tuned: a model with its optimizer, a loss, and batches. Trials work on copies."""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.leaves import as_double, structure_of
from slipstream.infer.subject import expect_own_forwards
from slipstream.recurrent import gather_weights
from slipstream.train.choices import Choices
from slipstream.train.parts import size_of
from slipstream.train.step import LossFn, TrainStep

_NORMS = (nn.modules.batchnorm._BatchNorm,)
_MANY = 50_000_000  # parameters


@dataclass(frozen=True)
class Subject:
    """`model` and `optimizer` are the caller's and never called. `written` is the step as it is."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_fn: LossFn
    batches: tuple[Any, ...]
    written: Choices

    @cached_property
    def device(self) -> torch.device:
        """Of the first parameter."""
        return next(self.model.parameters()).device

    @cached_property
    def usual(self) -> tuple[Any, ...]:
        """Batches of the most frequent shape: those that are timed."""
        kinds = [str(structure_of(batch)) for batch in self.batches]
        [(most, _)] = Counter(kinds).most_common(1)
        return tuple(batch for batch, kind in zip(self.batches, kinds, strict=True) if kind == most)

    @cached_property
    def checked(self) -> tuple[Any, ...]:
        """Batches that gradients are compared for: four, or two of a large model, and one of each
        other shape.
        """
        count = 2 if sum(one.numel() for one in self.model.parameters()) > _MANY else 4
        found = list(self.usual[:count])
        shapes = {str(structure_of(self.usual[0]))}
        for batch in self.batches:
            if (kind := str(structure_of(batch))) not in shapes:
                shapes.add(kind)
                found.append(batch)
        return tuple(found)

    @property
    def samples(self) -> int:
        """In a batch; 0 where that cannot be told."""
        return size_of(self.usual[0])

    @property
    def has_batch_norm(self) -> bool:
        """Whether a result depends on what else is in the batch."""
        parts = [part for part in self.model.modules() if isinstance(part, _NORMS)]
        return any(part.training or not part.track_running_stats for part in parts)

    @property
    def wait(self) -> Callable[[], None] | None:
        """What returns when the device is done; None where calls are over when they return."""
        if self.device.type == "cpu":
            return None
        return lambda: torch.get_device_module(self.device).synchronize(self.device)

    def build(self, choices: Choices) -> TrainStep:
        """A step on copies."""
        model, optimizer = copied(self.model, self.optimizer)
        return TrainStep(model, optimizer, self.loss_fn, **choices.as_dict())

    def build_double(self) -> TrainStep:
        """The step as written, in double precision."""
        model, optimizer = copied(self.model, self.optimizer)
        model.double()
        for kept in optimizer.state.values():
            own = {name: value for name, value in kept.items() if name != "step"}
            kept.update(as_double(own))
        return TrainStep(model, optimizer, self.loss_fn, **self.written.as_dict())


def copied(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Deep copies that belong together. Raises `UsageError` where there can be none."""
    memo: dict[int, Any] = {}
    expect_own_forwards(model)
    try:
        own, its = copy.deepcopy(model, memo), copy.deepcopy(optimizer, memo)
        for name, value in vars(optimizer).items():
            # A scheduler's own `step` is bound to the optimizer that it was made for.
            if name not in vars(its) and name != "step":
                setattr(its, name, copy.deepcopy(value, memo))
    except Exception as error:
        raise UsageError(
            f"{type(model).__name__} with {type(optimizer).__name__} cannot be copied "
            f"({type(error).__name__}: {error}), and the caller's own are never changed. Give "
            "ones that copy.deepcopy takes."
        ) from None
    gather_weights(own)
    return own, its
