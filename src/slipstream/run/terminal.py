"""What trials have in the place of the terminal that the script will run at."""

import fcntl
import os
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_END_OF_INPUT = b"\x04"
_EVERY_S = 0.5
_MOST = 2000  # a terminal takes no more where nobody reads


@contextmanager
def standard_input() -> Iterator[int]:
    """Where ours is a terminal, another one of its size, as scripts ask for that (`stty size`). Who
    reads from it finds the end.
    """
    try:
        ours, theirs = os.openpty() if os.isatty(0) else (-1, -1)
    except OSError:  # there are no more
        ours = theirs = -1
    if ours < 0:
        yield subprocess.DEVNULL
        return
    is_over = threading.Event()
    writer = threading.Thread(target=_end_input, args=(ours, is_over), daemon=True)
    try:
        with suppress(OSError):
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        writer.start()
        yield theirs
    finally:
        is_over.set()
        writer.join()
        os.close(theirs)
        os.close(ours)


def _end_input(terminal: int, is_over: threading.Event) -> None:
    """Again and again: who asks for a password throws away what came before."""
    for _ in range(_MOST):
        os.write(terminal, _END_OF_INPUT)
        if is_over.wait(_EVERY_S):
            return
