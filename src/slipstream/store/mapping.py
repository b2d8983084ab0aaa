"""Files as read-only memory, without keeping them open.

Python's `mmap` keeps a file descriptor per mapping before 3.13. A dataset of some thousand shards
would use up the process's limit, so the system call is made directly.
"""

import ctypes
import errno
import functools
import mmap
import os
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from slipstream.errors import StorageError

Map = npt.NDArray[np.uint8]


def map_file(path: Path) -> Map:
    """Map a file; the result is read-only and is unmapped when its last view is gone.

    Changing the file on disk afterwards changes what is read; cutting it short crashes readers.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return np.empty(0, dtype=np.uint8)
        return _as_array(_map(size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor), size)
    finally:
        os.close(descriptor)


def keep_in_memory(data: Map, *, may_copy: bool) -> Map:
    """Make the mapped bytes resident, and return the array to read them from.

    Locks the page cache's own pages, which every process shares. Where locking is refused (`ulimit
    -l`) and `may_copy` is given, copies into anonymous memory that forked children share.
    """
    if data.size == 0 or _libc().mlock(data.ctypes.data, data.size) == 0:
        return data
    if not may_copy:
        data[:: mmap.PAGESIZE].max()
        return data
    address = _map(
        data.size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1
    )
    copy = _as_array(address, data.size, writable=True)
    copy[:] = data
    copy.flags.writeable = False
    return copy


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc


def _map(size: int, protection: int, flags: int, descriptor: int) -> int:
    address = _libc().mmap(None, size, protection, flags, descriptor, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        advice = ""
        if code == errno.ENOMEM:
            advice = ". Pack into larger shards, or raise vm.max_map_count"
        raise StorageError(f"Cannot map {size} bytes: {os.strerror(code)}{advice}.")
    return int(address)


def _as_array(address: int, size: int, *, writable: bool = False) -> Map:
    region = (ctypes.c_ubyte * size).from_address(address)
    end = weakref.finalize(region, _libc().munmap, address, size)
    # At the interpreter's exit other threads may still be reading; the system unmaps by itself.
    end.atexit = False
    array = np.frombuffer(region, dtype=np.uint8)
    array.flags.writeable = writable
    return array
