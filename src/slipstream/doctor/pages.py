"""The page cache: put a file's pages out of it, and ask which of them are in."""

import ctypes
import functools
import mmap
import os
from typing import Any

_MAP_FAILED = ctypes.c_void_p(-1).value
# Pages are cached in groups of up to this size, which are dropped as a whole or not at all.
_GROUP_BYTES = 2 << 20


def drop_pages(fd: int, offset: int, length: int) -> None:
    """Ask the system to forget pages of an open file, and their neighbours. Dirty ones stay."""
    if hasattr(os, "posix_fadvise"):
        start = offset // _GROUP_BYTES * _GROUP_BYTES
        end = -(-(offset + length) // _GROUP_BYTES) * _GROUP_BYTES
        os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)


def resident_share(fd: int, offset: int, length: int) -> float | None:
    """Share of the pages that are in memory, 0 to 1; None where nobody can tell.

    `offset` is a whole number of pages. Asking reads nothing, but for other people's files: of
    those the system tells only whether a read would have to wait, so one page in the middle is
    tried for all, and the file's advice is set back to normal.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(bytes(9000)), file.flush()
    ...     resident_share(file.fileno(), 0, 9000) in (1.0, None)
    True
    """
    share = _mapped_share(fd, offset, length)
    if share == 1.0 and not _is_told_the_truth(fd):
        return _tried_page(fd, offset, length)
    return share


def _is_told_the_truth(fd: int) -> bool:
    """Of a file that one neither owns nor may write, mincore calls every page resident."""
    return os.geteuid() in (0, os.fstat(fd).st_uid) or os.access(f"/proc/self/fd/{fd}", os.W_OK)


def _mapped_share(fd: int, offset: int, length: int) -> float | None:
    libc = _libc()
    if libc is None or length <= 0:
        return None
    address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
    if address == _MAP_FAILED:
        return None
    try:
        pages = -(-length // mmap.PAGESIZE)
        states = (ctypes.c_ubyte * pages)()
        if libc.mincore(address, length, states) != 0:
            return None
        return sum(state & 1 for state in bytes(states)) / pages
    finally:
        libc.munmap(address, length)


@functools.cache
def _libc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        mapper: Any = libc.mmap
        unmapper: Any = libc.munmap
        asker: Any = libc.mincore
    except (OSError, AttributeError, TypeError):
        return None
    address, size = ctypes.c_void_p, ctypes.c_size_t
    mapper.restype = address
    mapper.argtypes = [address, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    unmapper.argtypes = [address, size]
    asker.argtypes = [address, size, ctypes.c_void_p]
    return libc


def _tried_page(fd: int, offset: int, length: int) -> float | None:
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    place = offset + length // 2
    # A read that may not wait still begins to fetch: this page only, not the pages around it.
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        return float(os.preadv(fd, [bytearray(1)], place, os.RWF_NOWAIT) > 0)
    except BlockingIOError:
        drop_pages(fd, place, 1)
        return 0.0
    except OSError:
        return None
    finally:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
