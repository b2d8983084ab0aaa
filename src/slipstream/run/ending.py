"""Signals that end a process, so that it leaves nothing behind."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # fmt: skip


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Inside, they raise `SystemExit`, with the exit code that a shell gives them; once, as what
    is cleaned up then is to come to its end. Signals that somebody handles or ignores (nohup) are
    left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, lambda number, frame: _end(number, taken, frame))
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, taken: list[signal.Signals], frame: FrameType | None) -> None:
    for other in taken:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
