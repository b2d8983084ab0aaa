"""A pipeline that is being lowered, and how the attributes of its transforms are read."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from slipstream.augment.batch_steps import BatchStep, Mirror
from slipstream.augment.chain import Stage
from slipstream.augment.finish import Finish
from slipstream.augment.steps import Flip, Step
from slipstream.errors import UsageError

Size = tuple[int, int]


class NotLowered(Exception):
    """The engine cannot take this transform over; the text says why."""


@dataclass(frozen=True)
class Draft:
    """What the transforms so far do: steps, and what is known of the picture after them."""

    exact: bool
    steps: tuple[Step, ...] = ()
    size: Size | None = None  # width, height of all pictures now, where they are alike
    least: Size = (1, 1)  # no picture is smaller now
    resized: bool = False
    flipped: bool = False
    filter: str = "bilinear"
    # What was made of the bytes before the first step on whole batches; None without one.
    first: Finish | None = None
    stages: tuple[Stage, ...] = ()
    # What is to be done since the last of them.
    finish: Finish = field(default_factory=Finish)
    notes: tuple[str, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """Whether torchvision has made a tensor of the picture by now."""
        return self.finish.kind != "array"

    def add(self, *steps: Step, **changes: Any) -> "Draft":
        """This draft with further steps and changed knowledge. Raises `NotLowered`."""
        if self.stages:
            raise NotLowered("moves pixels behind a step that the engine runs on whole batches")
        return replace(self, steps=self.steps + steps, **changes)

    def add_flip(self, flip: Flip) -> "Draft":
        """This draft with a flip: of the geometry where that makes no difference to the steps on
        whole batches before it, otherwise behind them.
        """
        if all(stage.allows_flips for stage in self.stages):
            return replace(self, steps=(*self.steps, flip), flipped=True)
        return self.add_batch_step(Mirror(flip.axis, flip.p, flip.op))

    def add_batch_step(self, step: BatchStep, *notes: str) -> "Draft":
        """This draft with a step on whole batches."""
        # Floats are float32 in between, whatever they are to be in the end.
        so_far = replace(self.finish, dtype=torch.float32, channels_last=False)
        done = self.stages
        if self.first is not None and so_far.kind == "float":
            done = (*done, so_far)
        return replace(
            self,
            first=self.first or so_far,
            stages=(*done, step),
            finish=replace(self.finish, scale="none", normalize=()),
            notes=(*self.notes, *notes),
        )


# A rule gives the new draft and the transform's short name for people.
Rule = Callable[[Draft, Any, int], tuple[Draft, str]]


def as_side(value: Any) -> int:
    """A number of pixels."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1:
        return int(value)
    raise NotLowered(f"size {value!r} is not a number of pixels from 1")


def as_number(value: Any, name: str) -> float:
    """A finite number."""
    if isinstance(value, (int, float, np.floating)) and math.isfinite(value):
        return float(value)
    raise NotLowered(f"{name} {value!r} is not a number")


def as_probability(value: Any) -> float:
    """A number from 0 to 1."""
    p = as_number(value, "p")
    if not 0 <= p <= 1:
        raise NotLowered(f"p {p} is not within 0 to 1")
    return p


def as_range(value: Any, name: str) -> tuple[float, float]:
    """(low, high), neither below 0."""
    if not isinstance(value, Sequence) or len(value) != 2:
        raise NotLowered(f"{name} {value!r} is not (min, max)")
    low, high = as_number(value[0], name), as_number(value[1], name)
    if not 0 <= low <= high:
        raise NotLowered(f"{name} {value!r} is not (min, max) with 0 <= min <= max")
    return low, high


def check_op(op: Any, rule: Callable[..., Any], *arguments: Any) -> None:
    """Try the rule or the maker of an op, for its arguments. Raises `UsageError`."""
    try:
        rule(*arguments)
    except NotLowered as reason:
        raise UsageError(f"{type(op).__name__}: {reason}.") from None
