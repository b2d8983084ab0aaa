"""`slipstream doctor`: what is slow in an unmodified script, and what it costs."""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import Script, options_of
from slipstream.errors import UsageError

_STEPS = 100
_SECONDS = 60.0
_WAITING = "slipstream: waiting for the first step …"
_LEAST_SECONDS = 3.0  # quick steps are watched for longer: lines are found by looking often


def doctor(
    context: typer.Context,
    script: Script = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Steps to watch, however long they take.",
            min=1,
            show_default="100, 3 seconds at least, 60 at most",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Seconds to watch, from the first step on.", min=0.1)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Let the script run to its end.")] = False,
    examine: Annotated[
        bool,
        typer.Option("--examine", help="Then take loading away piece by piece, in the live loop."),
    ] = False,
    html: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report.html"),
    json_file: Annotated[
        Path, typer.Option("--json", help="Where the report goes as JSON, for compare.")
    ] = Path("report.json"),
    capture_file: Annotated[
        Path | None, typer.Option("--capture", help="Keep the recording, too, in this file.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if there is a finding.")
    ] = False,
) -> None:
    """Run a script for some steps and say what is slow in it, where, and what it costs.

    The script is not changed. It is stopped when 100 steps or 60 seconds were
    watched. Standard output stays the script's own: what is found goes to
    standard error, and to report.html and report.json.

    \b
    slipstream doctor train.py --epochs 3   (behind the script: its options)
    slipstream doctor --steps 300 train.py  (before it: the doctor's)
    slipstream doctor -m package.train --epochs 3
    slipstream doctor --check train.py 2> found.txt
    torchrun --nproc-per-node 2 -m slipstream doctor train.py
    """
    from rich.console import Console

    from slipstream.doctor.capture import save_capture
    from slipstream.doctor.html import write_page
    from slipstream.doctor.launch import Launched, launch
    from slipstream.doctor.page import page_of
    from slipstream.doctor.report import make_report
    from slipstream.doctor.text import print_report
    from slipstream.launch import parse_target

    target = parse_target([*(script or ()), *context.args], "doctor", options_of(context))
    least_seconds = 0.0
    if steps is None and seconds is None and not full:
        steps, seconds, least_seconds = _STEPS, _SECONDS, _LEAST_SECONDS
    if full and examine:
        raise UsageError(
            "--full lets the script go on, which --examine cannot: it changes batches."
        )
    rank = int(os.environ.get("RANK", "0"))
    if rank:
        html, json_file = (_of_rank(path, rank) for path in (html, json_file))
        capture_file = capture_file and _of_rank(capture_file, rank)
    # Before the script runs: it may take long, and may change the folder.
    html_path, json_path = _place_for(html), _place_for(json_file)
    capture_path = None if capture_file is None else _place_for(capture_file)
    console = Console(stderr=True, highlight=False)

    def write(launched: Launched) -> int:
        report = make_report(launched.capture)
        failure = None
        # Files first: who looks at the first lines of the screen may close it.
        try:
            json_path.write_text(json.dumps(report, indent=1) + "\n")
            if capture_path is not None:
                save_capture(launched.capture, capture_path)
            write_page(page_of(launched.capture, report), html_path)
        except OSError as error:
            failure = UsageError(f"The report could not be written: {error}.")
        if not rank:
            print_report(report, console, page=str(html), arguments=target.args)
        if failure is not None:
            raise failure
        return launched.exit_code or int(check and bool(report["findings"]))

    launched = launch(
        target,
        steps=None if full else steps,
        seconds=None if full else seconds,
        least_seconds=least_seconds,
        examines=examine,
        when_left=write,
        when_quiet=None if rank else lambda: console.print(_WAITING, style="dim"),
    )
    exit_code = write(launched)
    sys.stdout.flush()
    if launched.capture.ended in ("window", "interrupted") and _has_own_threads():
        # They would go on for ever: the script that they work for was stopped.
        sys.stderr.flush()
        os._exit(exit_code)
    if exit_code:
        raise typer.Exit(exit_code & 0xFF)  # as the system has it


def _of_rank(path: Path, rank: int) -> Path:
    return path.with_stem(f"{path.stem}-rank{rank}")


def _place_for(path: Path) -> Path:
    """Where a file is to go, wherever the script goes. Raises `UsageError` if it cannot."""
    place = path.absolute()
    if place.is_dir():
        raise UsageError(f"{path} is a folder; expected the name of a file.")
    if not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: {place.parent} is no folder to write to.")
    return place


def _has_own_threads() -> bool:
    """Whether threads of the script are left that Python would wait for."""
    main = threading.main_thread()
    return any(t is not main and not t.daemon and t.is_alive() for t in threading.enumerate())
