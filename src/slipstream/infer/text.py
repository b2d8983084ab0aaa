"""The table of a search, as text."""

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from slipstream.infer.row import Row

if TYPE_CHECKING:
    from slipstream.infer.optimized import Optimized

_ORDER = ("won", "model", "passed", "slower", "rejected", "failed")
_IN_TURNS = ("won", "model")  # timed with all others that may have been the fastest
_WIDTH = 100


def table_of(rows: Sequence[Row], width: int = _WIDTH, color: bool = False) -> str:
    """The fastest first, and below it all others with a reason."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("faster", "ms", "error", "built in", "variant", "", "why"):
        right = name in ("faster", "ms", "error", "built in")
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    tried = [row for row in rows if row.state != "skipped"]
    for row in sorted(tried, key=_rank):
        style = {"won": "bold green", "model": "bold"}.get(row.state)
        table.add_row(*_cells(row), style=style if color else None)
    out = StringIO()
    console = Console(file=out, width=width, color_system="standard" if color else None)
    console.print(table)
    for line in _not_tried(rows):
        console.print(line, style="dim" if color else None, markup=False, highlight=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def verdict_of(found: "Optimized") -> str:
    """One sentence, and what another class would bring."""
    own = next(row for row in found.rows if row.state == "model")
    won = next((row for row in found.rows if row.state == "won"), None)
    if won is None:
        words = f"The model as it is, {own.ms:.3g} ms: "
        words += "nothing that gives the same answers is surely faster."
    else:
        words = f"{won.name}: {won.speed} faster, {own.ms:.3g} -> {won.ms:.3g} ms."
        if won.break_even_calls is not None:
            calls = f"{won.break_even_calls:,} calls"
            words += f" Building it took {won.build_s:.1f} s, which {calls} win back."
    best = won.speed.value if won and won.speed else 1.0
    further = [r for r in found.rows if r.why.startswith("not admitted") and r.speed]
    more = max(further, key=lambda row: row.speed.value, default=None)  # type: ignore[union-attr]
    if more is not None and more.speed is not None and more.speed.low > best:
        words += f"\nWith accuracy={more.kind!r}: {more.name}, {more.speed.value:.2f} x."
    return words


def _not_tried(rows: Sequence[Row]) -> list[str]:
    """One line for each reason."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.state == "skipped":
            name = row.added or row.name
            if name not in names.setdefault(row.why, []):
                names[row.why].append(name)
    lines = [f"not tried: {', '.join(found)}: {why}" for why, found in names.items()]
    return ["", *lines] if lines else []


def _rank(row: Row) -> tuple[int, float]:
    return _ORDER.index(row.state), -(row.speed.value if row.speed else 0.0)


def _cells(row: Row) -> tuple[str, ...]:
    speed = f"{row.speed.value:.2f} x" if row.speed else ""
    if row.speed and row.state in _IN_TURNS:
        speed = f"{row.speed.value:.2f} ({row.speed.low:.2f} to {row.speed.high:.2f})"
    ms = f"{row.ms:.3g}" if row.ms is not None else ""
    error = f"{row.error:.0e}" if row.error is not None else ""
    built = f"{row.build_s:.1f} s" if row.build_s is not None else ""
    state = {"model": "as it is"}.get(row.state, row.state)
    if row.state == "slower" and row.speed and row.speed.value > 1:
        state = "not sure"
    said = row.drop is not None and str(row.drop) in row.why
    drop = f"; score drops by {row.drop}" if row.drop is not None and not said else ""
    return speed, ms, error, built, row.name, state, f"{row.why}{drop}"
