"""A signal that would end the process while a file is under way: first the file is finished."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipstream.patches import Patches

# What those send who want a process to end in order, and what ends one that knows nothing of it.
_ENDING = (
    signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM,
    signal.SIGQUIT,
)  # fmt: skip


class Ends:
    """Takes the place of such signals where the script has not said what they do."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._kill = os.kill  # as it is without our watch
        self._signal, self._getsignal = signal.signal, signal.getsignal

    def install(self, patches: Patches) -> None:
        """A script that asks what a signal does hears what it did without us."""

        def wrap(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                found = original(*args, **kwargs)
                return signal.SIG_DFL if found == self._end else found

            return call

        patches.replace(signal, "signal", wrap)
        patches.replace(signal, "getsignal", wrap)

    def await_them(self) -> None:
        """A file is under way."""
        if threading.current_thread() is not threading.main_thread():
            return
        caught = _caught()
        for number in _ENDING:
            is_caught = caught >> (number - 1) & 1  # by a library, which Python does not know of
            if self._getsignal(number) is signal.SIG_DFL and not is_caught:
                self._signal(number, self._end)

    def let_go(self) -> None:
        """No more. From another thread it stays: it does what the signal would do."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDING:
            if self._getsignal(number) == self._end:
                self._signal(number, signal.SIG_DFL)

    def _end(self, number: int, frame: Any) -> None:
        self._finish()
        self._signal(number, signal.SIG_DFL)
        self._kill(os.getpid(), number)


def _caught() -> int:
    """A bit for each signal that has a handler; none where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
