"""What replays measured, as costs of a step."""

import math
import statistics
from dataclasses import dataclass
from typing import Any

from slipstream.doctor.finding import Gain
from slipstream.doctor.rules.case import Case


@dataclass(frozen=True)
class Comparison:
    """A part of a step as it is, against another way to do it. `low_ms` to `high_ms`: where the
    difference lies, with about 95 %.
    """

    cost_ms: float
    low_ms: float
    high_ms: float
    replay: dict[str, Any]

    @property
    def is_sure(self) -> bool:
        """Whether there is a difference at all."""
        return self.low_ms > 0

    @property
    def gain(self) -> Gain:
        """Of the other way."""
        return Gain(max(0.0, self.low_ms), max(0.0, self.high_ms), "measured")


def replays(case: Case, name: str) -> list[dict[str, Any]]:
    """All of this name."""
    return [replay for replay in case.capture.replays if replay["name"] == name]


def compared(case: Case, name: str, part_ms: float) -> Comparison | None:
    """The dearest replay of this name, scaled to what its part takes in the loop."""
    found = [compare(replay, part_ms) for replay in replays(case, name)]
    return max(found, key=lambda comparison: comparison.cost_ms, default=None)


def compare(replay: dict[str, Any], part_ms: float | None = None) -> Comparison:
    """`part_ms`: what the loop was seen to spend on it; None: as much as the replay."""
    now, then = replay["now_ms"], replay["then_ms"]
    part = statistics.median(now) if part_ms is None else part_ms
    saved = sorted(1 - after / before for before, after in zip(now, then, strict=True) if before)
    low, high = _interval(saved)
    return Comparison(part * statistics.median(saved), part * low, part * high, replay)


def _interval(values: list[float]) -> tuple[float, float]:
    """Of their median, by ranks."""
    count = len(values)
    rank = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return values[rank], values[count - 1 - rank]
