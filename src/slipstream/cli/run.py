"""`slipstream run`: an unmodified script, made faster, and proved to do the same."""

import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import Script, options_of
from slipstream.errors import UsageError
from slipstream.run.memory import TRIED

if TYPE_CHECKING:
    from rich.console import Console

    from slipstream.launch import Target
    from slipstream.run.outcome import Outcome


def run(
    context: typer.Context,
    script: Script = None,
    allow: Annotated[
        str,
        typer.Option(
            help="exact: results stay the same bit for bit. numeric: they may round, or draw"
            " other random numbers."
        ),
    ] = "exact",
    only: Annotated[str, typer.Option(help="Take these fixes alone: a,b")] = "",
    skip: Annotated[str, typer.Option(help="Leave these fixes out: a,b")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Try the fixes and say what they bring, no more.")
    ] = False,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff", help="Try the fixes, then print a patch of your source that makes them stay."
        ),
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Where the result goes as JSON.")] = None,
) -> None:
    """Run a script with all that makes it faster, and the same results.

    The script is not changed. It is tried for some steps first, as it is and
    with the fixes, which takes half a minute to some minutes; what it writes
    then is thrown away.

    \b
    slipstream run train.py ARGS
    slipstream run -m package.module ARGS
    slipstream run --diff train.py ARGS > fast.patch && git apply fast.patch
    """
    from rich.console import Console

    from slipstream.launch import parse_target
    from slipstream.run.choose import Wish
    from slipstream.run.launch import run as run_fixed

    # The script may put something else in the place of sys.stderr.
    console = Console(file=sys.__stderr__ or sys.stderr, highlight=False)
    target = parse_target([*(script or []), *context.args], "run", options_of(context))
    wish = Wish(allow, _names(only), _names(skip))
    folder = Path.cwd()
    if diff and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("--diff is for one process: run it without torchrun.")
    if report is not None:
        report = report.absolute()  # the script may go elsewhere
        _check_report(report)
    # Of a training that is over, nothing that we do behind it may make a failure.
    told: Callable[[], AbstractContextManager[None]]
    told = contextlib.nullcontext if dry_run or diff else _told
    outcome = run_fixed(
        target, wish, dry=dry_run or diff,
        say=lambda line: console.print(f"slipstream: {line}", style="dim", markup=False),
    )  # fmt: skip
    with told():
        if report is not None and not outcome.rank:
            report.write_text(json.dumps(outcome.as_dict(), indent=1) + "\n")
    with told():
        sys.stdout.flush()
    with told():
        _print(outcome, target, folder, console)
    if diff:
        from slipstream.run.diff.show import diff_of

        sys.stdout.buffer.write(diff_of(target, outcome, folder, console).encode())
        sys.stdout.flush()
    if outcome.was_interrupted:
        raise typer.Exit(-signal.SIGINT)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code & 0xFF)  # as the system has it


def _check_report(report: Path) -> None:
    """Before anything is tried. Raises `UsageError` where no file can be written."""
    if TRIED in os.environ or int(os.environ.get("RANK", "0")):
        return
    if report.is_dir():
        raise UsageError(f"--report is a file; {report} is a folder.")
    if not report.parent.is_dir():
        raise UsageError(f"--report: there is no folder {report.parent}.")
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        raise UsageError(f"--report: {report} cannot be written.")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """An error is told, by the stream that the script cannot have replaced, and no more."""
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):
            traceback.print_exc(file=sys.__stderr__)


def _print(outcome: "Outcome", target: "Target", folder: Path, console: "Console") -> None:
    from slipstream.run.diff.suggest import print_suggestions
    from slipstream.run.text import print_outcome

    if not outcome.fixes:
        # Nothing was chosen from. That was said; a script that fails has the last word.
        if outcome.warnings and not outcome.exit_code:
            console.print(f"slipstream: {outcome.warnings[0]}", style="dim", markup=False)
        return
    print_outcome(outcome, console)
    if not int(os.environ.get("RANK", "0")):
        print_suggestions(outcome, target, folder, console)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
