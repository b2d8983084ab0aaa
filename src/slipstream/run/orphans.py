"""Processes that a trial leaves behind, in whatever session they are."""

import contextlib
import ctypes
import time
from collections.abc import Iterator

import psutil

_SET_SUBREAPER, _GET_SUBREAPER = 36, 37  # of prctl, on Linux
_PATIENCE_S = 10.0


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """Processes that begin inside are gone behind it, and their children. While it lasts, those
    whose parents end come to this process; execve would keep that, so it is undone.
    """
    own = psutil.Process()
    before = set(own.children())
    was = _is_subreaper()
    _set_subreaper(True)
    try:
        yield
    finally:
        try:
            _end_all(own, before)
        finally:
            _set_subreaper(was)


def _end_all(own: psutil.Process, before: set[psutil.Process]) -> None:
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends:
        left = [child for child in own.children() if child not in before]
        if not left:
            return
        for child in left:
            _kill(child)
        # Theirs are ours then: another round.
        psutil.wait_procs(left, timeout=1)


def _kill(process: psutil.Process) -> None:
    """With all below it."""
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = process.children(recursive=True)
    for one in (process, *below):
        with contextlib.suppress(psutil.Error):
            one.kill()


def _is_subreaper() -> bool:
    value = ctypes.c_int(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_GET_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    return bool(value.value)


def _set_subreaper(is_on: bool) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_SUBREAPER, int(is_on), 0, 0, 0)
