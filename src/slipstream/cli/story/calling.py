"""Runs another program, shows that it lives, and keeps what it says."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from slipstream.errors import InternalError

_LINE_EVERY_S = 10.0
_PATIENCE_S = 10.0
_LAST_WORDS = 1500
_TELLING = ("epoch ", "slipstream: ")
Live = Callable[[str], None]  # takes what a program is doing, in a few words


@contextlib.contextmanager
def show_live(console: Console, words: str) -> Iterator[Live]:
    """A line with the seconds that pass, or plain lines now and then without a terminal."""
    if not console.is_terminal:
        told = time.monotonic()

        def tell(words: str) -> None:
            nonlocal told
            if time.monotonic() - told >= _LINE_EVERY_S:
                told = time.monotonic()
                console.print(f"   … {words}", markup=False, soft_wrap=True)
                console.file.flush()

        yield tell
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(" "),
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[w]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None, w=words)
        yield lambda words: progress.update(task, w=words[: max(20, console.width - 16)])


def call(arguments: Sequence[str], folder: Path, console: Console, shown: str) -> str:
    """All that `python ARGUMENTS` prints, in `folder`. Raises `InternalError` where it fails."""
    said: list[str] = []
    # An interrupt inside of Popen would leave a child that nobody knows.
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "80", "NO_COLOR": "1"},
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.stdout is not None
    try:
        if interrupts:
            raise KeyboardInterrupt
        with show_live(console, "starting …") as live:
            for line in child.stdout:
                said.append(line)
                if line.startswith(_TELLING):
                    live(line.strip().removeprefix("slipstream: "))
            code = child.wait()
    finally:
        _end(child)
    if code:
        words = "".join(said).strip()[-_LAST_WORDS:]
        raise InternalError(f"`{shown}` failed with exit code {code}. Its last words:\n{words}")
    return "".join(said)


def _end(child: "subprocess.Popen[str]") -> None:
    """Nothing of it is left, nor of what it started."""
    if child.poll() is None:
        # It cleans up behind itself, and so do the trials of `slipstream run`.
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
