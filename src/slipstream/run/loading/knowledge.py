"""What was learned about a loader, for its next iterations."""

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from slipstream.run.loading.crew import Crew
from slipstream.run.loading.held import Held

_JUDGED = 12  # batches, and
_JUDGED_ROUNDS = 2  # of all that make them
_STARTING = 4  # of those that come ahead: forked processes are slow at first
_GAIN = 0.97
_DOUBTS = 3
_RECENT = 3
_RECENT_AHEAD = 8


@dataclass(eq=False)
class Knowledge:
    """`roots` are what samples are made from, and `off` says why batches are not made ahead."""

    roots: list[Any]
    off: str = ""
    made_here: int = 0
    touched: set[int] = field(default_factory=set)  # generators that samples change
    verified: Held | None = None  # of what was seen to give the same batches elsewhere
    kinds: frozenset[type] = frozenset()  # of objects in the batch that it was seen by
    misses: int = 0  # in a row
    iterations: int = 0
    scouts: bool = True  # whether one process may draw for others that make batches
    mistakes: int = 0  # of it
    keeps: bool = True  # whether processes may wait for the next iteration
    crew: Crew | None = None  # that does
    delivered: int = 0
    pays: bool | None = None  # working ahead, once enough was seen of it
    doubts: int = 0  # about it, that were not confirmed
    # The mean period of batches made ahead that did not come sooner than those made here once did.
    _doubted_s: float = 0.0
    # What the loop takes, of what a batch takes to make: as seen while nobody else was at work.
    loop_share: float = 1.0
    _here_s: list[float] = field(default_factory=list)
    # From one batch's delivery to the next one's: made here, and made ahead.
    _periods_here: list[float] = field(default_factory=list)
    _periods_ahead: list[float] = field(default_factory=list)
    _loops: list[float] = field(default_factory=list)  # from its delivery to the next request
    _elsewhere_s: list[float] = field(default_factory=list)
    _scouted_s: list[float] = field(default_factory=list)

    @property
    def draws(self) -> bool:
        """Whether samples draw random numbers."""
        return bool(self.touched)

    @property
    def batch_s(self) -> float:
        """What a batch takes in the loop's process."""
        return min(self._here_s, default=0.0)

    @property
    def loop_s(self) -> float:
        """What the loop does with it, about."""
        return max(1e-4, _usual(self._loops))

    @property
    def makers(self) -> int:
        """How many processes make batches as fast as the loop, or the one that draws for them, can
        go on. In the loop's process all threads may have made one.
        """
        batch_s = max(self.batch_s, _usual(self._elsewhere_s))
        return max(1, math.ceil(batch_s / max(self.loop_s, _usual(self._scouted_s))))

    def note_loop(self, seconds: float) -> None:
        """The loop came back for another one after so long."""
        self._loops = [*self._loops[-_RECENT_AHEAD:], seconds]
        if not self._elsewhere_s:
            self.loop_share = min(self._loops) / max(self.batch_s, 1e-9)

    def note_made_elsewhere(self, seconds: float) -> None:
        """A batch was made in another process."""
        self._elsewhere_s = [*self._elsewhere_s[-_RECENT_AHEAD:], seconds]

    def note_scouted(self, seconds: float) -> None:
        """What a batch draws was found out."""
        self._scouted_s = [*self._scouted_s[-_RECENT_AHEAD:], seconds]

    def note_made_here(self, seconds: float) -> None:
        """A batch was made in the loop's process."""
        self.made_here += 1
        self._here_s = [*self._here_s[-_RECENT:], seconds]

    def judge_anew(self) -> None:
        """Others make batches from now on."""
        self.pays = None
        self._periods_ahead.clear()

    @property
    def is_doubted(self) -> bool:
        """Whether batches are to be made here for a while, as those made ahead seem to be as slow.
        The machine may have become slower since it was seen how long they take here.
        """
        return self._doubted_s > 0

    def note_period(self, seconds: float, *, is_ahead: bool, makers: int) -> bool:
        """A batch came so long after the one before. Whether `pays` is known now, said once."""
        if not is_ahead:
            self._periods_here = [*self._periods_here[-_RECENT:], seconds]
            return self.is_doubted and len(self._periods_here) > _RECENT and self._resolve_doubt()
        if self.pays is not None or not self._periods_here:
            return False
        self._periods_ahead.append(seconds)
        settled = self._periods_ahead[_STARTING:]
        if len(settled) < max(_JUDGED, _JUDGED_ROUNDS * makers):
            return False
        # They may come a few at once, and then none for long. The longest is a chance.
        mean = statistics.fmean(sorted(settled)[:-1])
        self.pays = self._is_sooner(mean)
        if self.pays or self.doubts >= _DOUBTS:
            return True
        self.judge_anew()
        self._doubted_s = mean
        self._periods_here.clear()
        return False

    def _resolve_doubt(self) -> bool:
        """Whether it was right."""
        mean, self._doubted_s = self._doubted_s, 0.0
        if self._is_sooner(mean):
            self.doubts += 1
            return False
        self.pays = False
        return True

    def _is_sooner(self, mean_s: float) -> bool:
        return mean_s <= _GAIN * statistics.median(self._periods_here)


def _usual(seconds: list[float]) -> float:
    return statistics.median_low(seconds) if seconds else 0.0
