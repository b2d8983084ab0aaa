"""The table of a search, as text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from slipstream.infer.row import Row
from slipstream.tables import short, text_of

if TYPE_CHECKING:
    from slipstream.infer.optimized import Optimized

_ORDER = ("won", "model", "passed", "slower", "rejected", "failed")
_WIDTH = 100
_NUMBERS = ("faster", "ms", "error", "built in")


def table_of(rows: Sequence[Row], width: int = _WIDTH, color: bool = False) -> str:
    """The fastest first, and below it all others, each with a reason below its name."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (*_NUMBERS, "", "variant"):
        right = name in _NUMBERS
        side: Literal["left", "right"] = "right" if right else "left"
        table.add_column(name, justify=side, no_wrap=right, overflow="fold")
    tried = [row for row in rows if row.state != "skipped"]
    for row in sorted(tried, key=_rank):
        style = {"won": "bold green", "model": "bold"}.get(row.state)
        shown = Group(row.name, *(Padding(why, (0, 0, 0, 2)) for why in _why(row)))
        table.add_row(*_numbers(row), _state(row), shown, style=style if color else None)
    notes = [Text(line, style="dim" if color else "") for line in _not_tried(rows)]
    return text_of(Group(table, *notes), width, color=color)


def verdict_of(found: "Optimized") -> str:
    """One sentence, and what another class would bring."""
    own = next(row for row in found.rows if row.state == "model")
    won = next((row for row in found.rows if row.state == "won"), None)
    if won is None:
        words = f"The model as it is, {_ms(own)} ms: "
        words += "nothing that gives the same answers is surely faster."
    else:
        words = f"{won.name}: {won.speed} faster, {_ms(own)} -> {_ms(won)} ms."
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


def _numbers(row: Row) -> tuple[str, ...]:
    return (
        f"{row.speed.value:.2f} x" if row.speed else "",
        _ms(row),
        f"{row.error:.0e}" if row.error is not None else "",
        f"{row.build_s:.1f} s" if row.build_s is not None else "",
    )


def _ms(row: Row) -> str:
    return short(row.ms) if row.ms is not None else ""


def _state(row: Row) -> str:
    if row.state == "slower" and row.speed and row.speed.high > 1:
        return "not sure"
    return {"model": "as it is"}.get(row.state, row.state)


def _why(row: Row) -> list[str]:
    """A line, or none."""
    reasons = [row.why] if row.why else []
    if row.speed and row.state != "model":
        reasons.append(f"{row.speed.low:.2f} to {row.speed.high:.2f} x")
    if row.drop is not None and str(row.drop) not in row.why:
        reasons.append(f"score drops by {row.drop}")
    return ["; ".join(reasons)] if reasons else []
