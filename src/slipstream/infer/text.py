"""The table of a search, as text."""

from collections.abc import Sequence
from io import StringIO

from slipstream.infer.row import Row

_ORDER = ("won", "model", "passed", "slower", "rejected", "failed", "skipped")
_WIDTH = 100


def table_of(rows: Sequence[Row], width: int = _WIDTH, color: bool = False) -> str:
    """The fastest first, and below it all others with a reason."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("faster", "ms", "error", "built in", "variant", "", "why"):
        right = name in ("faster", "ms", "error", "built in")
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    for row in sorted(rows, key=_rank):
        style = {"won": "bold green", "model": "bold", "skipped": "dim"}.get(row.state)
        table.add_row(*_cells(row), style=style if color else None)
    out = StringIO()
    Console(file=out, width=width, color_system="standard" if color else None).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _rank(row: Row) -> tuple[int, float]:
    return _ORDER.index(row.state), -(row.speed.value if row.speed else 0.0)


def _cells(row: Row) -> tuple[str, ...]:
    speed = f"{row.speed.value:.2f} x" if row.speed else ""
    ms = f"{row.ms:.3g}" if row.ms is not None else ""
    error = f"{row.error:.0e}" if row.error is not None else ""
    built = f"{row.build_s:.1f} s" if row.build_s is not None else ""
    state = {"model": "as it is"}.get(row.state, row.state)
    return speed, ms, error, built, row.name, state, row.why
