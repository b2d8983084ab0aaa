"""What was found about one switch."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from slipstream.timing import Ratio
from slipstream.train.switches import Kind

# step: as written. won: the recipe as a whole. kept: a part of it. passed: would be, if admitted.
# slower: not surely faster. rejected: another step. failed: raised, hung or leaks. skipped: not
# tried.
State = Literal["step", "won", "kept", "passed", "slower", "rejected", "failed", "skipped"]


@dataclass
class Row:
    """A line of the table. `why` says what led to its state. `speed` is beside the step that it was
    tried on, with all that was kept before it, and `base_ms` are those of that step in the same
    seconds: a machine is not as fast at all times.
    """

    name: str
    kind: Kind
    state: State
    why: str = ""
    base_ms: float | None = None
    ms: float | None = None
    samples_per_s: float | None = None
    speed: Ratio | None = None
    error: float | None = None  # of the gradient, as a share of its size
    cosine: float | None = None
    build_s: float | None = None
    break_even_steps: int | None = None
    peak_mb: float | None = None
    headroom: float | None = None  # share of memory that is free at the peak

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
