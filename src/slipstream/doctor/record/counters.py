"""What Linux counts for a process or thread; None where it does not.

Read by system calls of its own: Python's `open` is one of the things that are watched.
"""

import os
import threading

_LARGEST = 1 << 12


def _read(path: str, most: int = _LARGEST) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(descriptor, most)
    except OSError:
        return None
    finally:
        os.close(descriptor)


# Kept open, as they are read for every batch: path → process, thread, descriptor.
_open: dict[str, tuple[int, int, int]] = {}


def _read_again(path: str) -> bytes | None:
    whose = os.getpid(), threading.get_ident()
    known = _open.get(path)
    if known is None or known[:2] != whose:
        if known is not None:
            # A fork has the parent's, which counts the parent.
            os.close(known[2])
            del _open[path]
        try:
            known = _open[path] = (*whose, os.open(path, os.O_RDONLY))
        except OSError:
            return None
    try:
        return os.pread(known[2], _LARGEST, 0)
    except OSError:
        return None


def run_delay() -> int | None:
    """Nanoseconds that this thread was ready to run and had no core."""
    text = _read_again("/proc/thread-self/schedstat")
    return None if text is None else int(text.split()[1])


def read_counts() -> tuple[int | None, int | None]:
    """Bytes that this process has read by calls, and from storage."""
    text = _read_again("/proc/self/io")
    if text is None:
        return None, None
    lines = dict(line.split(b": ") for line in text.splitlines())
    return int(lines[b"rchar"]), int(lines[b"read_bytes"])


def threads() -> int | None:
    """Threads of this process."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        return None


def resident() -> int | None:
    """Bytes of this process that lie in memory."""
    text = _read("/proc/self/statm")
    return None if text is None else int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory() -> tuple[int, int] | None:
    """Bytes of this process that are its own, and bytes that it shares with others."""
    text = _read("/proc/self/smaps_rollup")
    if text is None:
        return None
    sizes = {b"Private": 0, b"Shared": 0}
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        whose = name.partition(b"_")[0]
        if whose in sizes and name.endswith((b"_Clean", b"_Dirty")):
            sizes[whose] += int(rest.split()[0]) * 1024
    return sizes[b"Private"], sizes[b"Shared"]


def filesystem(folder: str) -> str | None:
    """The kind of filesystem that a folder lies on, as Linux names it."""
    text = _read("/proc/self/mounts")
    path = os.path.abspath(folder)  # noqa: PTH100
    best, kind = -1, None
    for line in (text or b"").decode(errors="replace").splitlines():
        fields = line.split(" ")
        at = fields[1].replace("\\040", " ")
        inside = path == at or path.startswith(at.rstrip("/") + "/")
        if inside and len(at) >= best:
            best, kind = len(at), fields[2]
    return kind
