"""Two models in turns: which is surely faster, in milliseconds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from slipstream.infer.gates.reference import Reference
from slipstream.timing import Ratio, least_gain, ratio_of, time_in_turns

_TIMED_S = 4.0


@dataclass(frozen=True)
class Timed:
    """`least` is the ratio above which it is not noise: the model is timed against itself, too."""

    before_ms: float
    after_ms: float
    noise: Ratio
    speed: Ratio
    least: float

    @property
    def is_surely_faster(self) -> bool:
        """The lower bound counts."""
        return self.speed.low > self.least


def timed(before: Any, after: Any, reference: Reference, wait: Any) -> Timed:
    """Each called with the same inputs, which take turns as well."""
    calls = {
        "before": _call(before, reference),
        "again": _call(before, reference),
        "after": _call(after, reference),
    }
    taken = time_in_turns(calls, seconds=_TIMED_S, wait=wait)
    noise = ratio_of(taken["before"], taken["again"])
    speed = ratio_of(taken["before"], taken["after"])
    before_ms = 1e3 * _median(taken["before"])
    return Timed(
        before_ms,
        before_ms / speed.value,
        Ratio(1.0, noise.low, noise.high),
        speed,
        least_gain(noise),
    )


def _call(model: Any, reference: Reference) -> Callable[[], object]:
    example = reference.answers[0].inputs
    inputs = [answer.inputs.copy_shared_as(example) for answer in reference.answers]
    turn = iter(range(10**12))

    def call() -> object:
        with torch.no_grad():
            return inputs[next(turn) % len(inputs)](model)

    return call


def _median(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]
