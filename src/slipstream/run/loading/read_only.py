"""From now on this process cannot write to a file, by whatever library: the kernel's Landlock.

Audit hooks see what Python opens. A process that goes through samples with pictures that are black
must not have what it makes of them stored by a library of C either.
"""

import ctypes
import os
import struct

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # of system calls, the same on all processors
_VERSION = 1
_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_WRITE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
# To remove, and to make: files, folders, devices, sockets, pipes, links.
_CHANGE = sum(1 << bit for bit in range(4, 13))


def forbid_writing() -> None:
    """For the calling thread and those that it starts. `OSError` where the kernel has no Landlock.
    What is open already stays open.
    """
    version = _call(_CREATE, None, 0, _VERSION)
    handled = _WRITE | _CHANGE | (_REFER if version >= 2 else 0) | _TRUNCATE * (version >= 3)
    rules = _call(_CREATE, struct.pack("Q", handled), 8, 0)
    nothing = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    try:
        allowed = struct.pack("=Qi", _WRITE | _TRUNCATE * (version >= 3), nothing)
        _call(_ADD, rules, _BENEATH, allowed, 0)
        if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
        _call(_RESTRICT, rules, 0)
    finally:
        os.close(nothing)
        os.close(rules)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    # The kernel takes words.
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(_libc().syscall(ctypes.c_long(number), *words))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result
