"""What tells a file from what it was before: its number, its size and when it was changed."""

import os
import time

# The kernel's clock for files moves on by up to 10 ms at once: two changes in a row may look like
# one.
_TICK_NS = 20_000_000
Stamp = tuple[int, int, int]


def stamp_of(file: str | int) -> Stamp | None:
    """Of a path or a descriptor. What changes when a file or folder does; None where there is
    none.
    """
    try:
        found = os.stat(file)  # noqa: PTH116 - often
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def lasting_stamp_of(file: str | int) -> Stamp | None:
    """The same, and whatever is written to it afterwards makes it another one."""
    stamp = stamp_of(file)
    if stamp is not None and 0 <= time.time_ns() - stamp[2] < _TICK_NS:
        time.sleep(_TICK_NS * 1e-9)
        stamp = stamp_of(file)
    return stamp
