"""What the story has measured, and its one table."""

from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from slipstream.cli.story.trained import Trained
from slipstream.cli.text import say

_BATCH = 16


@dataclass
class Result:
    """What was measured and compared."""

    as_written: list[Trained] = field(default_factory=list)
    fixed: Trained | None = None
    packed: Trained | None = None
    checked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: str = ""

    def rows(self) -> list[tuple[str, float]]:
        """(way, pictures/s); the script as written counts as its faster run."""
        assert self.fixed is not None and self.packed is not None
        return [
            ("as written", max(run.pictures_per_s for run in self.as_written)),
            ("slipstream run", self.fixed.pictures_per_s),
            ("packed, slipstream.Loader", self.packed.pictures_per_s),
        ]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = self.rows()
        return {
            "schema": "slipstream.demo/1",
            "rows": [
                {"way": way, "pictures_per_s": speed, "ratio": speed / rows[0][1]}
                for way, speed in rows
            ],
            "as_written_runs": [run.pictures_per_s for run in self.as_written],
            "checked": self.checked,
            "notes": self.notes,
            "machine": self.machine,
        }


def print_result(result: Result, count: int, console: Console) -> None:
    """The one table, what was compared, and what makes it less sure."""
    rows = result.rows()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("faster by", "", "pictures/s", "ms a step"):
        table.add_column(name, justify="left" if not name else "right")
    for way, speed in rows:
        shown = f"{speed:,.0f}", f"{1000 * min(_BATCH, count) / speed:.1f}"
        table.add_row(f"{speed / rows[0][1]:.1f} x", way, *shown)
    console.print()
    console.print(table)
    console.print()
    say(
        f"Measured in this run, on {result.machine}: the same photos, model and number of steps,"
        " by the script's own clock, without its first epoch."
    )
    say(f"Checked: {'; '.join(result.checked)}.")
    for note in result.notes:
        say(f"Note: {note}.")
