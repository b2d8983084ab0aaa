"""A process that ends when the one that started it does."""

import contextlib
import ctypes
import os
import signal
import sys


def end_with_parent(parent: int) -> None:
    """A process that nobody waits for must not go on; `parent` may be gone by now."""
    with contextlib.suppress(OSError, AttributeError):
        set_on_parents_death = 1  # PR_SET_PDEATHSIG, of Linux
        ctypes.CDLL(None).prctl(set_on_parents_death, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
