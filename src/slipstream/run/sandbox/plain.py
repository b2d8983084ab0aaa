"""The system's functions as they were before any was mapped, for the sandbox itself."""

import contextlib
import errno
import fcntl
import io
import os
import shutil
import sys
import threading
from typing import BinaryIO

_FICLONE = 0x40049409  # of Linux
_MOST_COPIED = 4 << 30  # bytes

chmod = os.chmod
close = os.close
getcwd = os.getcwd
link = os.link
listdir = os.listdir
lstat = os.lstat
mkdir = os.mkdir
open_file = io.open
open_number = os.open
read_at = os.pread
readlink = os.readlink
scandir = os.scandir
stat = os.stat
statvfs = os.statvfs
symlink = os.symlink
unlink = os.unlink
utime = os.utime
write = os.write


def look(path: str) -> os.stat_result | None:
    """At a path, not at what a link there leads to."""
    try:
        return lstat(path)
    except OSError:
        return None


def make_folders(path: str) -> None:
    """With those above it."""
    with contextlib.suppress(FileExistsError):
        try:
            mkdir(path)
        except FileNotFoundError:
            make_folders(path.rpartition("/")[0])
            mkdir(path)


def copy_file(source: str, target: str, part: str) -> None:
    """With its mode and times; what is at `target` by then stays. `part` is a name to begin with,
    in the same file system.
    """
    part = f"{part}-{os.getpid()}-{threading.get_ident()}"
    found = stat(source)
    try:
        with open_file(source, "rb") as old, open_file(part, "wb") as new:
            if not _clone(old, new):
                check_room(source, found.st_size, new.fileno())
                shutil.copyfileobj(old, new, 2**20)
        chmod(part, found.st_mode & 0o7777)
        utime(part, ns=(found.st_atime_ns, found.st_mtime_ns))
        with contextlib.suppress(FileExistsError):
            link(part, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unlink(part)


def _clone(old: BinaryIO, new: BinaryIO) -> bool:
    """Where the file system can share what is equal."""
    try:
        fcntl.ioctl(new, _FICLONE, old.fileno())
    except OSError:
        return False
    return True


def check_room(source: str, size: int, place: str | int) -> None:
    """For a copy of so many bytes. Raises `OSError`."""
    found = statvfs(place)
    # Not all file systems know.
    room = found.f_bavail * found.f_frsize if found.f_blocks else 2 * _MOST_COPIED
    if size > min(_MOST_COPIED, room // 2):
        raise OSError(
            errno.EFBIG,
            f"the script writes to these {size / 1e9:.1f} GB, or moves them, and a trial would have"
            " to make a copy",
            source,
        )


def path_of(number: int) -> str:
    """Of an open folder."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(number, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return readlink(f"/proc/self/fd/{number}")
