"""The end of a run on a terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slipstream.run.outcome import Outcome

_STYLES = {"applied": "green", "undone": "red", "skipped": "dim"}


def print_outcome(outcome: Outcome, console: Console) -> None:
    """What was applied, what was not and why, and what it brought: by the first rank alone."""
    if outcome.rank:
        return
    console.print()
    console.print(_headline(outcome), style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for fix in sorted(outcome.fixes, key=lambda fix: list(_STYLES).index(fix.state)):
        why = "; ".join([fix.why, *fix.notes])
        table.add_row(fix.state, fix.name, fix.kind, escape(why), style=_STYLES[fix.state])
    console.print(table)
    console.print(f"check    {escape(outcome.checked)}")
    speed, ceiling = outcome.speed, outcome.ceiling_per_s
    # It is without loading alone: other fixes may lift it.
    if speed and ceiling and speed.after <= ceiling:
        console.print(
            f"ceiling  {ceiling:.2f} steps/s if batches came at no cost:"
            f" {speed.after / ceiling:.0%} of it reached"
        )
    if outcome.steps_per_s:
        console.print(f"this run {outcome.steps_per_s:.2f} steps/s")
    for line in outcome.others:
        console.print(escape(line), style="yellow")
    for line in outcome.warnings:
        console.print(f"note     {escape(line)}", style="yellow")
    if outcome.next:
        console.print(f"next     {escape(outcome.next)}", style="bold", soft_wrap=True)
        console.print(f"         {escape(outcome.next_why)}")


def _headline(outcome: Outcome) -> str:
    speed = outcome.speed
    count = sum(fix.state == "applied" for fix in outcome.fixes)
    fixes = f"{count} fix{'' if count == 1 else 'es'} applied"
    if speed is None:
        return f"{fixes}; too few steps to measure what they bring."
    return (
        f"{speed.ratio:.2f} x as fast ({speed.low:.2f} to {speed.high:.2f}): {speed.before:.2f}"
        f" steps/s before, {speed.after:.2f} after; {fixes}."
    )
