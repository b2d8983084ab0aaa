"""Counts the files that a process opens for reading.

By wrappers of the functions that open files. An audit hook would see more of them, but Python asks
it about much else, too: every `id()` and every look at a frame takes a microsecond longer then, and
loops over parameters and tracebacks are full of those.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from slipstream.doctor.capture import Process
from slipstream.doctor.record.rungs import COLD_FILES, Rungs, evict
from slipstream.patches import Patches

_MOST_PATHS = 20_000
_MOST_FOLDERS = 64
_KEPT_FILES = 100  # that the storage is tried with
_OPEN_FLAGS = os.O_WRONLY | os.O_RDWR
# Where functions that open files are held by a name of their own: module, path to it.
_HELD = (
    ("tarfile", "bltn_open"),
    ("pathlib", "_NormalAccessor.open"),
    ("IPython.core.interactiveshell", "io_open"),
)


class OpenCount:
    """The files of one process, into its `Process`, until `is_on` is False; the latest counts."""

    latest: ClassVar["OpenCount | None"] = None

    def __init__(self, process: Process, rungs: Rungs) -> None:
        self._process = process
        self._rungs = rungs
        self._seen: set[str] = set()
        self.is_on = True
        OpenCount.latest = self

    def note(self, path: str) -> None:
        """It is about to be opened."""
        if path.startswith(("/proc/", "/sys/", "/dev/")) or path.endswith((".py", ".pyc", ".so")):
            return
        if self._rungs.now == COLD_FILES:
            self.is_on = False  # evicting opens the file, too
            evict(path)
            self.is_on = True
        process = self._process
        process.opens += 1
        if path in self._seen:
            process.opened_again += 1
        elif len(self._seen) < _MOST_PATHS:
            self._seen.add(path)
            files = process.facts.setdefault("files", [])
            if len(files) < _KEPT_FILES:
                files.append(path)
        folder = path.rpartition("/")[0] or "."
        if folder in process.folders or len(process.folders) < _MOST_FOLDERS:
            process.folders[folder] = process.folders.get(folder, 0) + 1


def count_opens(patches: Patches, done: set[str]) -> None:
    """Wrap what opens files by now and is not in `done`, but for `builtins.open`."""
    for module_name, path in (("io", "open"), ("os", "open"), *_HELD):
        key = f"opens {module_name}.{path}"
        owner: Any = sys.modules.get(module_name)
        if owner is None or key in done:
            continue
        done.add(key)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        if owner is not None:
            wrap = _counted_flags if module_name == "os" else counted
            # In a class it must not become a method.
            patches.replace(owner, name, _static(wrap) if parents else wrap)


def counted(original: Any) -> Any:
    """`open`, with the files that it opens for reading counted."""

    def open_counted(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        if _is_reading(mode):
            _note(file)
        return original(file, mode, *args, **kwargs)

    return open_counted


def _counted_flags(original: Any) -> Any:
    def open_counted(path: Any, flags: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(flags, int) and not flags & _OPEN_FLAGS:
            _note(path)
        return original(path, flags, *args, **kwargs)

    return open_counted


def _static(wrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda original: staticmethod(wrap(original))


def _is_reading(mode: Any) -> bool:
    return isinstance(mode, str) and not set(mode) & set("wax+")


def _note(file: Any) -> None:
    count = OpenCount.latest
    if count is None or not count.is_on:
        return
    path = file if isinstance(file, str) else _path_of(file)
    if path is not None:
        count.note(path)


def _path_of(file: Any) -> str | None:
    if not isinstance(file, os.PathLike):
        return None  # a number, or bytes
    path = os.fspath(file)
    return path if isinstance(path, str) else None
