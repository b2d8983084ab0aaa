"""What a folder has, for a trial: os.listdir and os.scandir."""

import os
import stat
from collections.abc import Iterator
from typing import Any

from slipstream.run.sandbox import plain
from slipstream.run.sandbox.layers import Found, Layers


class Folders:
    """Makes the functions that take the place of Python's."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers

    def listdir(self, original: Any) -> Any:
        """Of `os.listdir`."""
        layers = self._layers

        def listdir(path: Any = None) -> Any:
            if isinstance(path, int):
                return original(path)
            given = "." if path is None else path
            found = layers.find(given)
            try:
                if layers.is_as_it_was(found) or not found.is_folder:
                    names = original(layers.for_reading(given))
                else:
                    names = layers.names(found)
            except OSError as error:
                error.filename = path
                raise
            return [os.fsencode(name) for name in names] if isinstance(given, bytes) else names

        return listdir

    def scandir(self, original: Any) -> Any:
        """Of `os.scandir`."""
        layers = self._layers

        def scandir(path: Any = None) -> Any:
            if isinstance(path, int):
                return original(path)
            given = "." if path is None else path
            found = layers.find(given)
            try:
                if layers.is_as_it_was(found) and _leads_to(given, found):
                    return original(given)
                if not found.is_folder:
                    return original(layers.for_reading(given))
                return Entries(self._entries(given, found))
            except OSError as error:
                error.filename = path
                raise

        return scandir

    def _entries(self, given: Any, found: Found) -> list["Entry"]:
        layers = self._layers
        own = _scan(layers.mapped(found.path), found.own)
        old = _scan(found.path or "/", found.old)
        names = list(old) if found.is_open else layers.names(found)
        entries = [own.get(name) or old.get(name) for name in names]
        return [Entry(entry, given) for entry in entries if entry is not None]


class Entries:
    """What os.scandir gives: an iterator that can be closed."""

    def __init__(self, entries: list["Entry"]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator["Entry"]:
        return self

    def __next__(self) -> "Entry":
        return next(self._entries)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held."""
        self._entries = iter(())


class Entry:
    """An os.DirEntry, below the folder that the script has named."""

    def __init__(self, entry: "os.DirEntry[str]", folder: Any) -> None:
        self._entry = entry
        path = os.path.join(os.fsdecode(folder), entry.name)  # noqa: PTH118
        is_bytes = isinstance(folder, bytes)
        self.name: Any = os.fsencode(entry.name) if is_bytes else entry.name
        self.path: Any = os.fsencode(path) if is_bytes else path

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        """Of the file where it lies."""
        return self._entry.inode()

    def is_symlink(self) -> bool:
        """Or not."""
        return self._entry.is_symlink()

    def is_junction(self) -> bool:
        """Only Windows has them."""
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Where a link leads is asked of the layers."""
        if follow_symlinks and self._entry.is_symlink():
            return stat.S_ISDIR(self._mode())
        return self._entry.is_dir(follow_symlinks=False)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """As `is_dir`."""
        if follow_symlinks and self._entry.is_symlink():
            return stat.S_ISREG(self._mode())
        return self._entry.is_file(follow_symlinks=False)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As `is_dir`."""
        if follow_symlinks and self._entry.is_symlink():
            return os.stat(self.path)  # noqa: PTH116  by the mapped function
        return self._entry.stat(follow_symlinks=False)

    def _mode(self) -> int:
        try:
            return os.stat(self.path).st_mode  # noqa: PTH116
        except FileNotFoundError:
            return 0


def _scan(folder: str, is_there: os.stat_result | None) -> dict[str, "os.DirEntry[str]"]:
    if is_there is None:
        return {}
    with plain.scandir(folder) as entries:
        return {entry.name: entry for entry in entries}


def _leads_to(given: Any, found: Found) -> bool:
    """Whether the system comes to the same folder by the script's own name of it."""
    text = os.fsdecode(given)
    if not text.startswith("/"):
        text = f"{plain.getcwd()}/{text}"
    return os.path.normpath(text) == (found.path or "/") and "/.." not in text
