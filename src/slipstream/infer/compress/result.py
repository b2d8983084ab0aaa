"""What compressing has brought: a model, and a table of what it costs in time and in score."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import nn

from slipstream.tables import short, text_of
from slipstream.timing import Ratio

# won: returned. slower: not surely faster. rejected: the score drops, or may. failed: no model.
State = Literal["model", "won", "slower", "rejected", "failed"]

_DRAWS = 1000


@dataclass(frozen=True)
class Score:
    """The mean of scores of single samples, with the bounds of about 95 %."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} ({self.low:.4f} to {self.high:.4f})"


def score_of(scores: Sequence[float]) -> Score:
    """Of one sample at least. Samples are drawn again for the bounds.

    >>> score_of([1.0, 1.0, 1.0])
    Score(mean=1.0, low=1.0, high=1.0)
    """
    own, size = random.Random(0), len(scores)
    means = sorted(sum(own.choices(scores, k=size)) / size for _ in range(_DRAWS))
    return Score(sum(scores) / size, means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS) - 1])


@dataclass
class CompressedRow:
    """A line of the table. `why` says what led to its state."""

    name: str
    state: State
    why: str = ""
    macs: int | None = None
    parameters: int | None = None
    score: Score | None = None
    drop: str | None = None
    ms: float | None = None
    speed: Ratio | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class Compressed:
    """`model` is the pruned one if it is surely faster and does its task as well, else the caller's
    own. `pruned` is the pruned one in any case, if there is one. `print` shows the table.
    """

    model: nn.Module
    pruned: nn.Module | None
    rows: list[CompressedRow]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"rows": [row.as_dict() for row in self.rows]}

    def __str__(self) -> str:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for name in ("faster", "ms", "MACs", "parameters", "score", "", "", "why"):
            right = name in ("faster", "ms", "MACs", "parameters")
            table.add_column(name, justify="right" if right else "left", no_wrap=right)
        for row in self.rows:
            table.add_row(*_cells(row))
        return text_of(table, 110)


def _cells(row: CompressedRow) -> tuple[str, ...]:
    return (
        f"{row.speed.value:.2f} x" if row.speed else "",
        short(row.ms) if row.ms is not None else "",
        _counted(row.macs),
        _counted(row.parameters),
        str(row.score) if row.score else "",
        row.name,
        {"model": "as it is"}.get(row.state, row.state),
        row.why,
    )


def _counted(number: int | None) -> str:
    """To three digits.

    >>> _counted(4_118_537_216), _counted(12_500), _counted(None)
    ('4.12 G', '12.5 k', '')
    """
    if number is None:
        return ""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)
