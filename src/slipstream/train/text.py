"""The table of a recipe, as text."""

from collections.abc import Sequence

from slipstream.tables import short, text_of
from slipstream.train.row import Row

_ORDER = ("won", "step", "kept", "passed", "slower", "rejected", "failed", "skipped")
_RIGHT = ("faster", "ms", "samples/s", "error", "peak MB")
_WIDTH = 120


def table_of(rows: Sequence[Row], width: int = _WIDTH) -> str:
    """What was kept first, and below it all others with a reason."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in (*_RIGHT, "step", "", "why"):
        right = name in _RIGHT
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "why")
    for row in sorted(rows, key=lambda row: _ORDER.index(row.state)):
        table.add_row(*_cells(row))
    return text_of(table, width)


def _ms(row: Row) -> str | None:
    if row.ms is None:
        return None
    return short(row.ms) if row.base_ms is None else f"{short(row.base_ms)} → {short(row.ms)}"


def _cells(row: Row) -> tuple[str, ...]:
    numbers = (
        (row.speed and row.speed.value, "{:.2f} x"),
        (_ms(row), "{}"),
        (row.samples_per_s if row.state in ("step", "won") else None, "{:,.0f}"),
        (row.error, "{:.0e}"),
        (row.peak_mb, "{:,.1f}"),
    )
    shown = tuple("" if value is None else form.format(value) for value, form in numbers)
    return *shown, row.name, {"step": "as it is"}.get(row.state, row.state), row.why
