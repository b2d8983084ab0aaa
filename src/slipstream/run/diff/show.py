"""What `--diff` prints: the patch, and beside it what became of each fix."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slipstream.launch import Target
from slipstream.run.diff.prove import Proof, proved_patch
from slipstream.run.diff.unified import base_of, unified
from slipstream.run.outcome import Outcome


def _speed(proof: Proof) -> str:
    speed = proof.speed
    assert speed is not None
    beside = "beside the numeric fixes" if proof.rounding else "beside the script"
    between = f"{speed.low:.2f} to {speed.high:.2f}"
    if speed.low <= 1 <= speed.high:
        return f"{between} x as fast {beside}: could not be told from noise"
    return f"{speed.ratio:.2f} x as fast ({between}) {beside}"


def diff_of(target: Target, outcome: Outcome, folder: Path, console: Console) -> str:
    """The patch as text; the rest goes to the console."""

    def say(line: str) -> None:
        console.print(f"slipstream: {line}", style="dim", markup=False)

    patch, proof = proved_patch(target, outcome, folder, say)
    base = base_of(list(patch.after), folder)
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, form in patch.forms.items():
        table.add_row("in the patch", name, escape(form), style="green")
    for name, why in patch.left_out.items():
        table.add_row("left out", name, escape(why), style="dim")
    console.print(table)
    if not patch.after:
        console.print("The patch is empty: no fix was applied that has lines of its own.")
        return ""
    console.print(f"check    {escape(proof.checked)}")
    if proof.speed is not None:
        console.print(f"patched  {_speed(proof)}")
    if base != folder:
        console.print(f"note     apply it in {escape(str(base))}", style="yellow")
    return unified(patch.before, patch.after, base)
