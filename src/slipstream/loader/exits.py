"""Ends threads in time when the interpreter exits."""

import atexit
import functools
import weakref
from typing import Protocol


class Closable(Protocol):
    """Something with threads."""

    def close(self) -> None:
        """End them. Idempotent."""


_running: "weakref.WeakSet[Closable]" = weakref.WeakSet()


def close_at_exit(thing: Closable) -> None:
    """Close it when the interpreter exits, if it still lives, before native code stops threads.

    Exit handlers run backwards, and the native module's holds up every thread that comes out of
    native code. Ours is registered when the first thing runs, which is later.
    """
    _running.add(thing)
    _register()


@functools.cache
def _register() -> None:
    atexit.register(_close_all)


def _close_all() -> None:
    for thing in list(_running):
        thing.close()
