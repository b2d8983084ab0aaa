"""The live line of `Loader(progress=True)`."""

import time
from typing import Any

from rich.console import Console
from rich.errors import LiveError
from rich.live import Live
from rich.text import Text

_EVERY_S = 0.2


class LiveLine:
    """One line on the terminal's error stream while an epoch runs; its last state stays there."""

    def __init__(self, epoch: int, batches: int | None, console: Console | None = None) -> None:
        self._epoch = epoch
        self._total = batches
        self._done = 0
        self._samples = 0
        self._wait_s = 0.0
        self._began = self._shown_at = time.perf_counter()
        self._live: Live | None = None
        live = Live(console=console or Console(stderr=True), auto_refresh=False, transient=False)
        try:
            live.start()
            self._live = live
        except LiveError:
            # Another live display has the terminal, the user's own maybe: it is not for us to take.
            pass

    def update(self, samples: int, wait_s: float, ready: int) -> None:
        """The loop was given a batch."""
        self._done += 1
        self._samples += samples
        self._wait_s += wait_s
        now = time.perf_counter()
        if self._live is not None and now - self._shown_at >= _EVERY_S:
            self._shown_at = now
            self._live.update(Text(self._text(now, ready)), refresh=True)

    def close(self) -> None:
        """Show the last state and leave the terminal. Idempotent."""
        live, self._live = self._live, None
        if live is not None:
            live.update(Text(self._text(time.perf_counter(), 0)), refresh=True)
            live.stop()

    def _text(self, now: float, ready: int) -> str:
        seconds = max(1e-9, now - self._began)
        total = f"/{self._total:,}" if self._total is not None else ""
        return (
            f"epoch {self._epoch} · {self._done:,}{total} batches · "
            f"{self._samples / seconds:,.0f} samples/s · loop waits {self._wait_s / seconds:.0%}"
            f" · {ready} ready"
        )


def open_line(loader: Any) -> LiveLine:
    """A line for the epoch that the loader has begun."""
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError):
        batches = None
    return LiveLine(loader._position.running_epoch, batches)
