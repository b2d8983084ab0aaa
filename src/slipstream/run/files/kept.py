"""A few things about files, each as long as its file is the same one."""

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Generic, TypeVar

Thing = TypeVar("Thing")
Stamp = tuple[int, int, int, int]
MOST = 16


def stamp(file: "str | int | os.PathLike[str]") -> Stamp:
    """Of a path or a file that is open: another one when it is replaced or written to."""
    found = os.stat(file)  # noqa: PTH116
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Kept(Generic[Thing]):
    """The things that were used last, of this process: what a fork takes over is let go. Any thread
    may ask.
    """

    def __init__(self, drop: Callable[[Thing], None] | None = None) -> None:
        self._things: OrderedDict[Hashable, tuple[Stamp, Thing]] = OrderedDict()
        self._drop = drop
        self._process = os.getpid()
        self._lock = RLock()

    def get(self, key: Hashable, now: Stamp) -> Thing | None:
        """None where it is not known, or of the file as it was."""
        if self._process != os.getpid():
            # Another thread may have held the lock when the process was forked.
            self._process, self._lock = os.getpid(), RLock()
            self.clear()
        with self._lock:
            found = self._things.get(key)
            if found is None:
                return None
            if found[0] != now:
                self.forget(key)
                return None
            self._things.move_to_end(key)
            return found[1]

    def put(self, key: Hashable, now: Stamp, thing: Thing) -> None:
        """Those that were not used for long go, and what had this name."""
        with self._lock:
            self.forget(key)
            self._things[key] = (now, thing)
            while len(self._things) > MOST:
                self.forget(next(iter(self._things)))

    def forget(self, key: Hashable) -> None:
        """Let go of one."""
        with self._lock:
            found = self._things.pop(key, None)
        if found is not None and self._drop is not None:
            self._drop(found[1])

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            for key in list(self._things):
                self.forget(key)
