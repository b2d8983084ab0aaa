"""The end of a run on a terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slipstream.run.outcome import ROUGH, FixOutcome, Outcome
from slipstream.run.speed import Speed

_AS_TRIED = 0.8
_VAGUE = 4.0  # times as large as its lower end is an interval that says nothing about how much
_LABEL = 9  # columns
_STYLES = {"applied": "green", "undone": "red"}
_KINDS = {
    "E": "E: results stay as they are, bit for bit.",
    "N": "N: the same maths, with other rounding or random numbers.",
}


def print_outcome(outcome: Outcome, console: Console) -> None:
    """What was applied, what was not and why, and what it brought: by the first rank alone."""
    if outcome.rank:
        return
    console.print()
    console.print(_headline(outcome), style="bold")
    _print_fixes(outcome, console)
    _print_skipped([fix for fix in outcome.fixes if fix.state == "skipped"], console)
    _print_line("check", outcome.checked, console)
    speed, ceiling = outcome.speed, outcome.ceiling_per_s
    # It is without loading alone: other fixes may lift it.
    reached = max(speed.after if speed else 0.0, outcome.steps_per_s or 0.0)
    is_rough = any(line.endswith(ROUGH) for line in outcome.warnings)
    if speed and ceiling and reached <= ceiling and not is_rough:
        share = f"{(outcome.steps_per_s or speed.after) / ceiling:.0%} of it reached"
        _print_line(
            "ceiling", f"{ceiling:.2f} steps/s if batches came at no cost: {share}", console
        )
    if outcome.steps_per_s:
        why = "" if speed is None else _why_slower(outcome.steps_per_s, speed)
        _print_line("this run", f"{outcome.steps_per_s:.2f} steps/s{why}", console)
    if outcome.tried_s:
        _print_line("trying", f"took {outcome.tried_s:.0f} s{_made_up(outcome)}", console)
    for line in outcome.others:
        console.print(escape(line), style="yellow")
    for line in outcome.warnings:
        _print_line("note", line, console, style="yellow")
    if outcome.next:
        console.print(f"next     {escape(outcome.next)}", style="bold", soft_wrap=True)
        _print_line("", outcome.next_why, console)


def _print_fixes(outcome: Outcome, console: Console) -> None:
    """What was applied or undone. Those with the same reason share a row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for state in _STYLES:
        for fix in outcome.fixes:
            if fix.state == state:
                rows.setdefault((state, fix.kind, _reason(fix)), []).append(fix.name)
    if not rows:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for (state, kind, why), names in rows.items():
        shown = "passed" if state == "applied" and outcome.is_dry else state
        table.add_row(shown, ",\n".join(names), kind, escape(why), style=_STYLES[state])
    console.print(table)
    said = {kind for _, kind, _ in rows}
    console.print(" ".join(_KINDS[kind] for kind in _KINDS if kind in said), style="dim")


def _print_skipped(fixes: list[FixOutcome], console: Console) -> None:
    """A paragraph for each reason."""
    names: dict[str, list[str]] = {}
    for fix in fixes:
        names.setdefault(_reason(fix), []).append(fix.name)
    for number, (why, found) in enumerate(names.items()):
        label = "" if number else "skipped"
        _print_line(label, f"{', '.join(found)}: {why}", console, style="dim")


def _reason(fix: FixOutcome) -> str:
    return "; ".join([fix.why, *fix.notes])


def _print_line(label: str, text: str, console: Console, *, style: str = "") -> None:
    table = Table.grid()
    table.add_column(width=_LABEL)
    table.add_column(overflow="fold")
    table.add_row(label, escape(text), style=style)
    console.print(table)


def _why_slower(steps_per_s: float, speed: Speed) -> str:
    if steps_per_s < _AS_TRIED * speed.before:
        return (
            ", slower than the script as it is was in trials: other programs, or what lies between"
            " steps, which trials do not count"
        )
    if steps_per_s < _AS_TRIED * speed.after:
        return ", with all that lies between steps, which trials do not count"
    return ""


def _made_up(outcome: Outcome) -> str:
    speed = outcome.speed
    has_none = not any(fix.state == "applied" for fix in outcome.fixes)
    if speed is None or has_none or outcome.missed:
        return ""
    if speed.low <= 1:
        had = "" if outcome.steps is None else f", and this run had {outcome.steps:,} steps"
        return f"; whether fixes make up for that could not be told{had}"
    steps = outcome.tried_s / (1 / speed.before - 1 / speed.after)
    had = "" if outcome.steps is None else f"; this run had {outcome.steps:,}"
    return f", made up for after about {steps:,.0f} steps{had}"


def _headline(outcome: Outcome) -> str:
    speed = outcome.speed
    count = sum(fix.state == "applied" for fix in outcome.fixes)
    they = "it brings" if count == 1 else "they bring"
    fixes = f"{count} fix{'' if count == 1 else 'es'} {'passed' if outcome.is_dry else 'applied'}"
    if not count:
        return f"No fix {'has passed' if outcome.is_dry else 'was applied'}."
    if outcome.missed and speed is not None and speed.low >= 1:
        without = " and ".join(outcome.missed)
        return (
            f"{fixes}. Trials were {speed.ratio:.2f} x as fast ({speed.low:.2f} to"
            f" {speed.high:.2f}), with {without}; the run went without."
        )
    if speed is None:
        return f"{fixes}; what {they} was not measured."
    if speed.low < 1:
        # Fixes that surely slow it down were undone.
        says = 1 <= speed.high <= _VAGUE * speed.low
        between = f" ({speed.low:.2f} to {speed.high:.2f} x as fast)" if says else ""
        return f"{fixes}; what {they} could not be told from noise{between}."
    if speed.high > _VAGUE * speed.low:
        return (
            f"{fixes}: faster, and how much could not be told from noise ({speed.low:.2f} to"
            f" {speed.high:.2f} x as fast)."
        )
    return (
        f"{speed.ratio:.2f} x as fast ({speed.low:.2f} to {speed.high:.2f}): {speed.before:.2f}"
        f" steps/s before, {speed.after:.2f} after; {fixes}."
    )
