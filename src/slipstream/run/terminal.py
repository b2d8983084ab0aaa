"""What trials have in the place of the terminal that the script will run at."""

import fcntl
import os
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_END_OF_INPUT = b"\x04"
_READERS = 64


@contextmanager
def standard_input() -> Iterator[int]:
    """Where ours is a terminal, another one of its size, as scripts ask for that (`stty size`). Who
    reads from it finds the end.
    """
    if not os.isatty(0):
        yield subprocess.DEVNULL
        return
    ours, theirs = os.openpty()
    try:
        with suppress(OSError):
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        os.write(ours, _READERS * _END_OF_INPUT)
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)
