"""What was found about one variant."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from slipstream.infer.change import Kind
from slipstream.timing import Ratio

# won: returned. passed: the same answers, not the fastest. slower: not faster than the model.
# rejected: other answers. failed: raised, hung or gave no numbers. skipped: not tried.
State = Literal["model", "won", "passed", "slower", "rejected", "failed", "skipped"]


@dataclass
class Row:
    """A line of the table. `why` says what led to its state."""

    name: str
    kind: Kind
    state: State
    why: str = ""
    ms: float | None = None
    speed: Ratio | None = None
    build_s: float | None = None
    error: float | None = None  # of its results, as a share of their size
    agreement: float | None = None  # rows whose greatest value is in the same place
    drop: str | None = None
    peak_mb: float | None = None
    break_even_calls: int | None = None
    added: str = ""  # the change that this variant tries

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
