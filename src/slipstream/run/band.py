"""Whether losses stay where those of the script itself do, when only its random numbers change.

Runs of the script with other seeds give a band. Their losses are smoothed over the latest `SMOOTH`
backward passes; the middle is that between the least and the greatest of them, the run with the
script's own seed among them, and the band reaches `WIDER` times half of their distance to either
side, of the largest distance within `SMOOTH` passes, as that of four runs is itself uncertain. It
reaches at least `LEAST` of the loss, which is what a changed order of sums may do to a script that
draws nothing. A run is inside if all of its losses are numbers and at most `OUTSIDE` of its passes
leave the band.

With losses that scatter by a tenth or less, between passes and between seeds, a run from the same
seed that only rounds differently is inside; one from another seed is in five of six cases, and one
whose losses are a fifth too high in one of ten.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.run.seen import number_of
from slipstream.run.trace import Trace

RUNS = 3  # with other seeds, at least
SMOOTH = 8
WIDER = 2.0
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
    return [number_of(loss) for loss in trace.losses]


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
    values = list(zip(*(smoothed(run[:length]) for run in runs), strict=True))
    distances = [max(losses) - min(losses) for losses in values]
    for number, losses in enumerate(values):
        middle = (min(losses) + max(losses)) / 2
        distance = max(distances[max(0, number - SMOOTH) : number + SMOOTH + 1])
        reach = max(WIDER * distance / 2, LEAST * abs(middle))
        low.append(middle - reach)
        high.append(middle + reach)
    return Band(tuple(low), tuple(high))


def departure(band: Band, losses: Sequence[float], *, is_cut: bool = False) -> str | None:
    """Where the losses of a run leave the band, in words; None for a run that is inside. `is_cut`:
    it was ended, and may have come less far for that alone.

    >>> departure(Band((1.0,), (2.0,)), [2.5])
    'loss leaves the band at step 1: 2.5, band 1 to 2'
    """
    for number, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            return f"loss is {loss} at step {number}"
    compared = min(len(losses), len(band))
    if compared < (FEWEST if is_cut else len(band)):
        return f"it came to {len(losses)} losses, the script itself to {len(band)}"
    outside = [
        (number, loss, low, high)
        for number, (loss, low, high) in enumerate(
            zip(smoothed(losses), band.low, band.high, strict=False), 1
        )
        if not low <= loss <= high
    ]
    if len(outside) <= OUTSIDE * compared:
        return None
    number, loss, low, high = outside[0]
    return f"loss leaves the band at step {number}: {loss:.4g}, band {low:.4g} to {high:.4g}"
