"""How much faster a run is than another, with an interval."""

import itertools
import math
import random
import statistics
from dataclasses import dataclass, replace

from slipstream.run.trace import Trace

_WARM_UP = 3  # steps, or this share of them: fixes have to look at a loop and to start processes
_WARM_UP_SHARE = 1 / 3
_BLOCKS = 8
_DRAWS = 400
_LEAST_STEPS = 4
# Of the ratio of two processes of the same script, which differ for as long as they live: by where
# their memory lies, by what else the machine does. The steps of each know nothing of it.
_PROCESSES = 0.05


@dataclass(frozen=True)
class Speed:
    """Steps per second before and after, and their ratio with about 95 %."""

    before: float
    after: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Above 1: faster."""
        return self.after / self.before


def across_processes(speed: Speed | None, pairs: int) -> Speed | None:
    """With the interval of that many pairs of processes, not of their steps alone.

    >>> across_processes(Speed(10.0, 10.4, 1.03, 1.05), 1).low < 1
    True
    """
    if speed is None:
        return None
    more = 1 + _PROCESSES / math.sqrt(pairs)
    return replace(speed, low=speed.low / more, high=speed.high * more)


def compare_speed(before: Trace, after: Trace) -> Speed | None:
    """None where one of them is too short to tell."""
    return speed_of(steady_seconds(before), steady_seconds(after))


def steady_seconds(trace: Trace) -> list[float]:
    """What each step took once all was under way.

    >>> len(steady_seconds(Trace(ends=[float(second) for second in range(49)])))
    32
    """
    steps = trace.step_seconds()
    return steps[max(_WARM_UP, int(_WARM_UP_SHARE * len(steps))) :]


def speed_of(before: list[float], after: list[float]) -> Speed | None:
    """Of the seconds that steps took.

    >>> speed_of([0.2] * 10, [0.1] * 10).ratio
    2.0
    """
    if min(len(before), len(after)) < _LEAST_STEPS:
        return None
    ratios = sorted(_resampled_ratios(before, after))
    return Speed(
        1 / statistics.fmean(before),
        1 / statistics.fmean(after),
        ratios[int(0.025 * _DRAWS)],
        ratios[int(0.975 * _DRAWS)],
    )


def _resampled_ratios(before: list[float], after: list[float]) -> list[float]:
    """Steps come in bursts, as batches do: whole stretches of them are drawn."""
    own = random.Random(0)  # not the script's
    one, other = _blocks(before), _blocks(after)
    return [
        statistics.fmean(own.choices(one, k=len(one)))
        / statistics.fmean(own.choices(other, k=len(other)))
        for _ in range(_DRAWS)
    ]


def _blocks(steps: list[float]) -> list[float]:
    count = min(_BLOCKS, len(steps))
    edges = [number * len(steps) // count for number in range(count + 1)]
    return [statistics.fmean(steps[a:b]) for a, b in itertools.pairwise(edges)]
