"""The live line of `Loader(progress=True)`."""

import time
import weakref
from typing import Any

from rich.console import Console
from rich.errors import LiveError
from rich.live import Live
from rich.text import Text

_EVERY_S = 0.2


class _Counts:
    """What the line shows."""

    def __init__(self, epoch: int, batches: int | None) -> None:
        self.epoch = epoch
        self.total = batches
        self.done = 0
        self.samples = 0
        self.wait_s = 0.0
        self.began = self.shown_at = time.perf_counter()

    def text(self, now: float, ready: int) -> Text:
        seconds = max(1e-9, now - self.began)
        total = f"/{self.total:,}" if self.total is not None else ""
        return Text(
            f"epoch {self.epoch} · {self.done:,}{total} batches · "
            f"{self.samples / seconds:,.0f} samples/s · loop waits {self.wait_s / seconds:.0%}"
            f" · {ready} ready"
        )


class LiveLine:
    """One line on the terminal's error stream while an epoch runs; its last state stays there.

    A line that is dropped, as by a `break`, gives the terminal back as one that is closed.
    """

    def __init__(self, epoch: int, batches: int | None, console: Console | None = None) -> None:
        self._counts = _Counts(epoch, batches)
        self._live: Live | None = None
        live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=False)
        try:
            live.start()
        except LiveError:
            # Another live display has the terminal, the user's own maybe: it is not for us to take.
            return
        self._live = live
        self._end = weakref.finalize(self, _end, live, self._counts)

    def update(self, samples: int, wait_s: float, ready: int) -> None:
        """The loop was given a batch."""
        counts = self._counts
        if counts.done == 0:
            # The epoch began with the wait for its first batch.
            counts.began = min(counts.began, time.perf_counter() - wait_s)
        counts.done += 1
        counts.samples += samples
        counts.wait_s += wait_s
        now = time.perf_counter()
        if self._live is not None and now - counts.shown_at >= _EVERY_S:
            counts.shown_at = now
            self._live.update(counts.text(now, ready), refresh=True)

    def close(self) -> None:
        """Show the last state and leave the terminal. Idempotent."""
        if self._live is not None:
            self._live = None
            self._end()


def _end(live: Live, counts: _Counts) -> None:
    live.update(counts.text(time.perf_counter(), 0), refresh=True)
    live.stop()


def open_line(loader: Any) -> LiveLine:
    """A line for the epoch that the loader has begun."""
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError):
        batches = None
    return LiveLine(loader._position.running_epoch, batches)
