"""What was learned about a loader, for its next iterations."""

from dataclasses import dataclass, field
from typing import Any

from slipstream.run.loading.watch import Watch


@dataclass
class Knowledge:
    """`roots` are what samples are made from, and `off` says why batches are not made ahead."""

    roots: list[Any]
    off: str = ""
    made_here: int = 0
    here_s: list[float] = field(default_factory=list)
    # From one batch's delivery to the next one's: made here, and made ahead.
    periods_here: list[float] = field(default_factory=list)
    periods_ahead: list[float] = field(default_factory=list)
    draws: bool = False
    verified: Watch | None = None  # of what was seen to give the same batches elsewhere
    misses: int = 0  # in a row
    delivered: int = 0
    is_judged: bool = False

    @property
    def batch_s(self) -> float:
        """What a batch takes in the loop's process."""
        return min(self.here_s, default=0.0)
