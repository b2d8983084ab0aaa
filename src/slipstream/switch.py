"""Settings of the process that are others for a while, by as many threads as want it."""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class _Inside:
    """One who is; gone with its block, even where an alarm has ended that at any point."""


class Switch(Generic[T]):
    """The last one to leave puts back what the first one found.

    >>> setting = ["on"]
    >>> off = Switch(lambda: setting[0], lambda: setting.__setitem__(0, "off"),
    ...              lambda before: setting.__setitem__(0, before))
    >>> with off():
    ...     setting[0]
    'off'
    >>> setting[0]
    'on'
    """

    def __init__(
        self, read: Callable[[], T], change: Callable[[], object], restore: Callable[[T], object]
    ) -> None:
        self._read, self._change, self._restore = read, change, restore
        self._lock = threading.Lock()
        self._inside: weakref.WeakSet[_Inside] = weakref.WeakSet()
        self._before: list[T] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """For this block."""
        one = _Inside()
        try:
            with self._lock:
                if not self._inside and not self._before:
                    self._before[:] = [self._read()]
                self._inside.add(one)
                self._change()
            yield
        finally:
            with self._lock:
                self._inside.discard(one)
                if not self._inside and self._before:
                    self._restore(self._before[0])
                    self._before.clear()
