"""Named shared memory of a trial: Linux has it as files, and so it is written where files are."""

import importlib
import os
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import Any

_FOLDER = "/dev/shm"
_KIND = "shared_memory"


def wrapped(open_mapped: Callable[..., int], remove_mapped: Callable[..., None]) -> dict[Any, Any]:
    """By the functions of files in the sandbox."""
    if not os.path.isdir(_FOLDER):  # noqa: PTH112
        return {}
    system: Any = importlib.import_module("_posixshmem")

    def shm_open(path: str, flags: int, mode: int = 0o777) -> int:
        return open_mapped(_place(path), flags | os.O_CLOEXEC, mode)

    def shm_unlink(path: str) -> None:
        remove_mapped(_place(path))

    return {
        system.shm_open: shm_open,
        system.shm_unlink: shm_unlink,
        # It would remove at the end what has these names outside.
        resource_tracker.register: _others(resource_tracker.register),
        resource_tracker.unregister: _others(resource_tracker.unregister),
    }


def _place(path: str) -> str:
    return f"{_FOLDER}/{path.lstrip('/')}"


def _others(original: Any) -> Any:
    def note(name: str, kind: str) -> None:
        if kind != _KIND:
            original(name, kind)

    return note
