"""How many samples go through a model at once: samples per second over sizes, and the knee."""

from collections.abc import Sequence
from dataclasses import dataclass

KNEE = 0.95  # of the most samples per second
HEADROOM = 0.1  # of all memory
_MOST_SIZES = 6


@dataclass(frozen=True)
class Point:
    """One size of micro-batches, with the batch that makes an update always the same."""

    size: int
    samples_per_s: float
    headroom: float | None  # share of memory that is free at the peak; None: not known


def sizes_of(samples: int) -> list[int]:
    """Those worth a try: the whole batch, and halves down to a sixteenth or so.

    >>> sizes_of(48)
    [48, 24, 12, 6, 3, 2]
    """
    found = [samples]
    while found[-1] > 1 and len(found) < _MOST_SIZES:
        found.append(-(-found[-1] // 2))
    return found


def knee_of(points: Sequence[Point]) -> tuple[Point, str]:
    """The smallest size that loses little speed and leaves memory free, and why it is the one.

    >>> knee_of([Point(64, 100.0, 0.05), Point(32, 99.0, 0.4), Point(16, 70.0, 0.7)])[0].size
    32
    """
    roomy = [one for one in points if one.headroom is None or one.headroom >= HEADROOM]
    if not roomy:
        best = max(points, key=lambda one: one.headroom or 0.0)
        return best, f"no size leaves {HEADROOM:.0%} of memory free; this leaves most"
    most = max(one.samples_per_s for one in roomy)
    fast = [one for one in roomy if one.samples_per_s >= KNEE * most]
    best = min(fast, key=lambda one: one.size)
    free = "" if best.headroom is None else f", and {best.headroom:.0%} of memory is free"
    share = best.samples_per_s / most
    return best, f"the smallest with {KNEE:.0%} of the most samples/s: it has {share:.0%}{free}"
