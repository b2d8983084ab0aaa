"""Whether losses stay where those of the script itself do, when only its random numbers change.

Runs of the script with other seeds give a band: at each backward pass the least and the greatest
of their losses, smoothed over the latest `SMOOTH` passes, the run with the script's own seed among
them. It is made `WIDER` times as wide about its middle, and reaches at least `LEAST` of the loss to
either side, which is what a changed order of sums may do to a script that draws nothing. A run is
inside if all of its losses are numbers and at most `OUTSIDE` of its passes leave the band: four
runs do not have the most extreme loss of all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.run.trace import Trace

RUNS = 3  # with other seeds, at least
SMOOTH = 8
WIDER = 1.5
LEAST = 0.005
OUTSIDE = 0.05
FEWEST = 8  # losses, to tell anything


@dataclass(frozen=True)
class Band:
    """`low[k]` to `high[k]`: where the smoothed loss of pass k+1 may be."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.low)


def losses_of(trace: Trace) -> list[float]:
    """As numbers."""
    return [float.fromhex(loss) for loss in trace.losses]


def smoothed(losses: Sequence[float]) -> list[float]:
    """Each with those before it.

    >>> smoothed([4.0, 2.0])
    [4.0, 3.0]
    """
    return [
        math.fsum(window) / len(window)
        for end in range(1, len(losses) + 1)
        if (window := losses[max(0, end - SMOOTH) : end])
    ]


def band_of(runs: Sequence[Sequence[float]]) -> Band | None:
    """Of the losses of several runs, as far as all of them have come; None where they tell nothing:
    too few of them, or some are no numbers.
    """
    length = min((len(run) for run in runs), default=0)
    if len(runs) <= RUNS or length < FEWEST:
        return None
    if not all(math.isfinite(loss) for run in runs for loss in run[:length]):
        return None
    low, high = [], []
    for values in zip(*(smoothed(run[:length]) for run in runs), strict=True):
        middle = (min(values) + max(values)) / 2
        half = max(WIDER * (max(values) - min(values)) / 2, LEAST * abs(middle))
        low.append(middle - half)
        high.append(middle + half)
    return Band(tuple(low), tuple(high))


def departure(band: Band, losses: Sequence[float]) -> str | None:
    """Where the losses of a run leave the band, in words; None for a run that is inside.

    >>> departure(Band((1.0,), (2.0,)), [2.5])
    'loss leaves the band at step 1: 2.5, band 1 to 2'
    """
    for number, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            return f"loss is {loss} at step {number}"
    if len(losses) < len(band):
        return f"it came to {len(losses)} losses, the script itself to {len(band)}"
    outside = [
        (number, loss, low, high)
        for number, (loss, low, high) in enumerate(
            zip(smoothed(losses), band.low, band.high, strict=False), 1
        )
        if not low <= loss <= high
    ]
    if len(outside) <= OUTSIDE * len(band):
        return None
    number, loss, low, high = outside[0]
    return f"loss leaves the band at step {number}: {loss:.4g}, band {low:.4g} to {high:.4g}"
