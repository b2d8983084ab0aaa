"""Files that a dataset has in memory as they lie on the disk, or holds open. Who writes to one of
them through a map of its own changes what samples are made from, and no time stamp tells.
"""

import contextlib
import fcntl
import mmap
import os
import stat
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

_READ_ONLY = (mmap.ACCESS_READ, mmap.ACCESS_COPY)
_DELETED = " (deleted)"
_File = tuple[int, int]  # device and number


def lies_in_map(array: Any) -> bool:
    """Whether the memory of an array is a map's."""
    while isinstance(array, (np.ndarray, memoryview)):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return isinstance(array, mmap.mmap)


def address_of(memory: Any) -> int:
    """Of a map, or of another object that has memory."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


class MappedFiles:
    """Those that lie at these addresses, and `files` beside them. `paths` are of the former."""

    def __init__(self, addresses: list[int], files: list[_File]) -> None:
        found = [line for line in _maps() if any(line.holds(one) for one in addresses)]
        self.paths = sorted({line.path for line in found if line.is_there()})
        self._files = {*files, *(file for line in found for file in line.files())}
        self._is_written = False

    def watch(self) -> None:
        """From now on it is noticed when this process maps one of them for writing."""
        if not _watched:
            _watch_maps()
        _watched.add(self)

    def is_written(self) -> bool:
        """Whether that was seen."""
        return self._is_written

    def can_be_written(self) -> bool:
        """Whether this process has mapped one of them for writing, or has it open for that."""
        return any(file in self._files for file in _files_to_write())

    def note(self, file: _File) -> None:
        """It is mapped for writing."""
        self._is_written = self._is_written or file in self._files


class _Map:
    """A line of what the kernel says of this process's memory."""

    def __init__(self, line: str) -> None:
        between, self.rights, _, device, number, *path = line.split(maxsplit=5)
        self._start, self._end = (int(part, 16) for part in between.split("-"))
        major, minor = (int(part, 16) for part in device.split(":"))
        self._file = os.makedev(major, minor), int(number)
        self.path = path[0].rstrip("\n") if path else ""

    def holds(self, address: int) -> bool:
        return self._start <= address < self._end and self._file[1] != 0

    def is_there(self) -> bool:
        return self.path.startswith("/") and not self.path.endswith(_DELETED)

    def files(self) -> list[_File]:
        """Some file systems number devices in two ways."""
        try:
            found = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return [self._file]
        return [self._file, (found.st_dev, found.st_ino)]


def _maps() -> Iterator[_Map]:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123
        yield from map(_Map, lines.readlines())


def _files_to_write() -> Iterator[_File]:
    for line in _maps():
        if line.rights[1] == "w" and line.rights[3] == "s":
            yield from line.files()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            found = os.fstat(int(name))
            access = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE
            if stat.S_ISREG(found.st_mode) and access != os.O_RDONLY:
                yield found.st_dev, found.st_ino


_watched: "weakref.WeakSet[MappedFiles]" = weakref.WeakSet()
_hooks: list[Any] = []  # they cannot be taken away again


def _watch_maps() -> None:
    if _hooks:
        return

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event != "mmap.__new__" or not _watched or args[2] in _READ_ONLY:
            return
        with contextlib.suppress(OSError):  # of no file
            found = os.fstat(args[0])
            for files in [*_watched]:
                files.note((found.st_dev, found.st_ino))

    _hooks.append(hook)
    sys.addaudithook(hook)
