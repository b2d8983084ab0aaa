"""What was learned about a loader, for its next iterations."""

import statistics
from dataclasses import dataclass, field
from typing import Any

from slipstream.run.loading.crew import Crew
from slipstream.run.loading.held import Held

_JUDGED = 12  # batches
_GAIN = 0.97
_RECENT = 3


@dataclass(eq=False)
class Knowledge:
    """`roots` are what samples are made from, and `off` says why batches are not made ahead."""

    roots: list[Any]
    off: str = ""
    made_here: int = 0
    draws: bool = False
    verified: Held | None = None  # of what was seen to give the same batches elsewhere
    misses: int = 0  # in a row
    iterations: int = 0
    scouts: bool = True  # whether one process may draw for others that make batches
    mistakes: int = 0  # of it
    keeps: bool = True  # whether processes may wait for the next iteration
    crew: Crew | None = None  # that does
    delivered: int = 0
    _here_s: list[float] = field(default_factory=list)
    # From one batch's delivery to the next one's: made here, and made ahead.
    _periods_here: list[float] = field(default_factory=list)
    _periods_ahead: list[float] = field(default_factory=list)
    _loops: list[float] = field(default_factory=list)  # the former without what making took
    _is_judged: bool = False

    @property
    def batch_s(self) -> float:
        """What a batch takes in the loop's process."""
        return min(self._here_s, default=0.0)

    @property
    def loop_s(self) -> float:
        """What the loop does with it, about."""
        return max(1e-4, min(self._loops, default=0.0))

    def note_made_here(self, seconds: float) -> None:
        """A batch was made in the loop's process."""
        self.made_here += 1
        self._here_s = [*self._here_s[-_RECENT:], seconds]

    def note_period(self, seconds: float, *, is_ahead: bool) -> bool | None:
        """A batch came so long after the one before. Returns, once, whether working ahead pays."""
        if not is_ahead:
            self._periods_here = [*self._periods_here[-_RECENT:], seconds]
            self._loops = [*self._loops[-_RECENT:], seconds - self._here_s[-1]]
            return None
        if self._is_judged or not self._periods_here:
            return None
        self._periods_ahead.append(seconds)
        if len(self._periods_ahead) < _JUDGED:
            return None
        self._is_judged = True
        return statistics.median(self._periods_ahead) <= _GAIN * min(self._periods_here)
