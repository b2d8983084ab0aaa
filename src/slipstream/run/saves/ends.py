"""A signal that would end the process while a file is under way: first the file is finished."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGHUP)  # what those send who want a process to end in order


class Ends:
    """Takes the place of such signals where the script has not said what they do."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._kill = os.kill  # as it is without our watch

    def await_them(self) -> None:
        """A file is under way."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._end)

    def let_go(self) -> None:
        """No more. From another thread it stays: it does what the signal would do."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDING:
            if signal.getsignal(number) == self._end:
                signal.signal(number, signal.SIG_DFL)

    def _end(self, number: int, frame: Any) -> None:
        self._finish()
        signal.signal(number, signal.SIG_DFL)
        self._kill(os.getpid(), number)
