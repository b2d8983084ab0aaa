"""Named shared memory of a trial: its own has another name there, and is removed behind it.

What others have made is mapped so that the trial sees what they write, and they do not see what it
writes: it may be too large to copy. To remove it only hides it from the trial.
"""

import contextlib
import importlib
import mmap
import os
from collections.abc import Callable
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any

from slipstream.run.sandbox import plain
from slipstream.run.sandbox.layers import TRIALS_OWN, Layers

_FOLDER = "/dev/shm"
_KIND = "shared_memory"


def wrapped(layers: Layers, folder: Path, remove_mapped: Callable[[str], None]) -> dict[Any, Any]:
    """The functions that open and remove it, and those that remember its names."""
    if not os.path.isdir(_FOLDER):  # noqa: PTH112
        return {}
    system: Any = importlib.import_module("_posixshmem")
    names = _Names(layers, _begin_of(folder.parent), remove_mapped)
    users: Any = shared_memory
    users.mmap = _Maps(names)
    return {
        system.shm_open: names.open,
        system.shm_unlink: names.remove,
        # It would remove at the end what has these names outside.
        resource_tracker.register: _others(resource_tracker.register),
        resource_tracker.unregister: _others(resource_tracker.unregister),
    }


def remove_all(place: Path) -> None:
    """Of a trial that is over."""
    begin = Path(_begin_of(place))
    if begin.parent.is_dir():
        for left in begin.parent.glob(f"{begin.name}*"):
            left.unlink(missing_ok=True)


def _begin_of(place: Path) -> str:
    return f"{TRIALS_OWN}{place.name}-"


class _Names:
    def __init__(self, layers: Layers, begin: str, remove_mapped: Callable[[str], None]) -> None:
        self._layers, self._begin, self._remove = layers, begin, remove_mapped
        self.others: set[int] = set()  # numbers of open files

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """As the system does."""
        name = path.lstrip("/")
        place = f"{_FOLDER}/{name}"
        found = self._layers.find(place)
        if found.any is None and flags & os.O_CREAT:
            with contextlib.suppress(FileNotFoundError):
                plain.unlink(self._begin + name)  # its name was removed, as that of a file
            number = plain.open_number(self._begin + name, flags | os.O_CLOEXEC, mode)
            self._layers.make_place(place)
            plain.symlink(self._begin + name, self._layers.mapped(place))
            self._layers.gone.note_links()
        else:
            number = plain.open_number(self._layers.for_reading(place), flags | os.O_CLOEXEC, mode)
        self.others.discard(number)
        if found.is_only_old and not found.is_open:
            self.others.add(number)
        return number

    def remove(self, path: str) -> None:
        """What is the trial's own; what is not is hidden."""
        name = path.lstrip("/")
        found = self._layers.find(f"{_FOLDER}/{name}")
        self._remove(f"{_FOLDER}/{name}")
        if found.path == self._begin + name:
            plain.unlink(found.path)


class _Maps:
    """The module, as shared memory sees it."""

    def __init__(self, names: _Names) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return getattr(mmap, name)

    def mmap(self, number: int, size: int) -> mmap.mmap:
        """Its own for what others have made."""
        if number in self._names.others:
            return mmap.mmap(number, size, flags=mmap.MAP_PRIVATE)
        return mmap.mmap(number, size)


def _others(original: Any) -> Any:
    def note(name: str, kind: str) -> None:
        if kind != _KIND:
            original(name, kind)

    return note
