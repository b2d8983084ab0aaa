"""Progress of long work: a bar with rate and time left, or plain lines without a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_LINE_EVERY_S = 5.0


class Report(Protocol):
    """Tell how much is done: (done, total or None)."""

    def __call__(self, done: int, total: int | None) -> None:
        """Take note; cheap enough for every item."""
        ...


@contextmanager
def show_progress(title: str, unit: str) -> Iterator[Report]:
    """Show progress on stderr for as long as the block runs.

    with show_progress("packing", "samples") as report:
        report(10, 200)
    """
    if not sys.stderr.isatty():
        yield _Lines(title, unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    rate = TextColumn("{task.fields[rate]}")
    count = TextColumn("{task.fields[count]}")
    columns = (TextColumn(title), BarColumn(), count, rate, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=None, rate="", count="")
        started = time.monotonic()
        first: int | None = None

        def report(done: int, total: int | None) -> None:
            nonlocal first
            # A continued pack starts in the middle; its rate counts from there.
            first = done - 1 if first is None else first
            passed_s = max(time.monotonic() - started, 1e-9)
            progress.update(
                task,
                completed=done,
                total=total,
                rate=f"{_number((done - first) / passed_s, unit)}/s",
                count=_count(done, total, unit),
            )

        yield report


class _Lines:
    """A line of text every few seconds."""

    def __init__(self, title: str, unit: str) -> None:
        self._title = title
        self._unit = unit
        self._started = time.monotonic()
        self._told = self._started
        self._first: int | None = None

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self._first is None:
            # A continued pack starts in the middle; its rate counts from there.
            self._first = done
        if now - self._told < _LINE_EVERY_S:
            return
        self._told = now
        rate = (done - self._first) / (now - self._started)
        left = f", {(total - done) / rate:.0f} s left" if total is not None and rate > 0 else ""
        told = f"{_count(done, total, self._unit)}, {_number(rate, self._unit)}/s{left}"
        print(f"{self._title}: {told}", file=sys.stderr, flush=True)


def _count(done: int, total: int | None, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(done) + (f" of {format_bytes(total)}" if total is not None else "")
    return f"{done:,}" + (f" of {total:,}" if total is not None else "") + f" {unit}"


def _number(value: float, unit: str) -> str:
    return format_bytes(value) if unit == "bytes" else f"{value:,.0f}"


def format_bytes(count: float) -> str:
    """Bytes for people.

    >>> format_bytes(27_600_000)
    '27.6 MB'
    """
    for name in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} B" if name == "B" else f"{count:.1f} {name}"
        count /= 1000
    return f"{count:.1f} TB"
