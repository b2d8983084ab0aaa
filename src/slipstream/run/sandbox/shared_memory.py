"""Named shared memory of a trial, which has names of its own there, and is removed behind it.

What others have made is opened as it is: it may be large, and they may go on writing to it. To
remove it only hides it from the trial.
"""

import errno
import importlib
import os
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from slipstream.run.sandbox import plain

_FOLDER = "/dev/shm"
_KIND = "shared_memory"


def wrapped(folder: Path) -> dict[Any, Any]:
    """The functions that open and remove it, and those that remember its names."""
    if not os.path.isdir(_FOLDER):  # noqa: PTH112
        return {}
    system: Any = importlib.import_module("_posixshmem")
    names = _Names(folder)
    return {
        system.shm_open: names.open,
        system.shm_unlink: names.remove,
        # It would remove at the end what has these names outside.
        resource_tracker.register: _others(resource_tracker.register),
        resource_tracker.unregister: _others(resource_tracker.unregister),
    }


def remove_all(place: Path) -> None:
    """Of a trial that is over."""
    if os.path.isdir(_FOLDER):  # noqa: PTH112
        for left in Path(_FOLDER).glob(f"{place.name}-*"):
            left.unlink(missing_ok=True)


class _Names:
    def __init__(self, folder: Path) -> None:
        self._begin = f"{_FOLDER}/{folder.parent.name}-"
        self._gone = f"{folder.parent}/shared-memory-gone"

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """As the system does."""
        name = path.lstrip("/")
        users = f"{_FOLDER}/{name}"
        has_users = _exists(users) and not _exists(f"{self._gone}-{name}")
        if _exists(self._begin + name) or not has_users:
            users = self._begin + name
        return plain.open_number(users, flags | os.O_CLOEXEC, mode)

    def remove(self, path: str) -> None:
        """What is the trial's own; what is not is hidden."""
        name = path.lstrip("/")
        gone = f"{self._gone}-{name}"
        if _exists(self._begin + name):
            plain.unlink(self._begin + name)
        elif _exists(f"{_FOLDER}/{name}") and not _exists(gone):
            plain.close(plain.open_number(gone, os.O_CREAT, 0o600))
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _exists(path: str) -> bool:
    try:
        plain.lstat(path)
    except FileNotFoundError:
        return False
    return True


def _others(original: Any) -> Any:
    def note(name: str, kind: str) -> None:
        if kind != _KIND:
            original(name, kind)

    return note
