"""Keeps what a trial writes out of the user's files.

Files opened for writing, directories made and files removed are mapped into a folder of their own;
what was written there is what the trial reads back. Covers Python's own functions and torch.save:
libraries that write from C are not seen.
"""

import builtins
import io
import os
import shutil
import stat
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from slipstream.patches import Patches

# Programs that report to a server: each has a switch.
QUIET = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Sandbox:
    """From `enter` to the end of the process: there is no way back, a trial is thrown away."""

    def __init__(self, folder: Path) -> None:
        """What is written goes below `folder`, whose parent is free for all."""
        self._folder = folder
        self._patches = Patches()
        self._gone: set[str] = set()
        # The trial's own temporary folder is thrown away; pipes and devices are no files.
        self._open_places = tuple(
            os.path.abspath(place) + os.sep  # noqa: PTH100
            for place in (tempfile.gettempdir(), "/dev", "/proc", "/sys", str(folder.parent))
        )

    def enter(self) -> None:
        """Before the script starts."""
        replace = self._patches.replace
        for owner in (builtins, io):
            replace(owner, "open", self._wrap_open)
        replace(os, "open", self._wrap_os_open)
        replace(os, "mkdir", self._wrap_make)
        for name in ("remove", "unlink", "rmdir"):
            replace(os, name, self._wrap_remove)
        for name in ("rename", "replace"):
            replace(os, name, self._wrap_move)
        for name in ("chmod", "chown", "lchown", "truncate", "utime", "setxattr"):
            replace(os, name, self._wrap_change)
        for name in ("symlink", "link"):
            replace(os, name, self._wrap_link)
        for name in ("stat", "access"):
            replace(os, name, self._wrap_look)
        replace(os, "listdir", self._wrap_list)
        replace(os, "scandir", self._wrap_scan)
        replace(shutil, "rmtree", self._wrap_remove)
        replace(torch, "save", self._wrap_save)
        for module in _safetensors():
            replace(module, "serialize_file", self._wrap_serialize)
            replace(module, "safe_open", self._wrap_look, disguised=False)

    def _wrap_open(self, original: Any) -> Any:
        def open_mapped(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(file, (str, bytes, os.PathLike)) and kwargs.get("opener") is None:
                writes = any(letter in mode for letter in "wax+")
                kept = "a" in mode or ("+" in mode and "w" not in mode)
                file = self._for_writing(file, keep=kept) if writes else self._for_reading(file)
            return original(file, mode, *args, **kwargs)

        return open_mapped

    def _wrap_os_open(self, original: Any) -> Any:
        def open_mapped(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is None:
                writes = flags & _WRITING
                keep = not flags & os.O_TRUNC
                path = self._for_writing(path, keep=keep) if writes else self._for_reading(path)
            return original(path, flags, *args, **kwargs)

        return open_mapped

    def _wrap_make(self, original: Any) -> Any:
        def make(path: Any, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("dir_fd") is not None or self._is_open_place(path):
                original(path, *args, **kwargs)
                return
            if os.path.exists(path):  # noqa: PTH110  through the mapped stat
                raise FileExistsError(17, "File exists", path)
            self._gone.discard(_real(path))
            os.makedirs(self._mapped(path), exist_ok=True)  # noqa: PTH103

        return make

    def _wrap_remove(self, original: Any) -> Any:
        def remove(path: Any, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("dir_fd") is not None or self._is_open_place(path):
                original(path, *args, **kwargs)
                return
            mapped = self._mapped(path)
            if Path(mapped).exists():
                original(mapped, *args, **kwargs)
            self._gone.add(_real(path))

        return remove

    def _wrap_move(self, original: Any) -> Any:
        def move(source: Any, target: Any, **kwargs: Any) -> None:
            if kwargs or (self._is_open_place(source) and self._is_open_place(target)):
                original(source, target, **kwargs)
                return
            kept = self._for_writing(source, keep=True)
            original(kept, self._for_writing(target, keep=False))
            self._gone.add(_real(source))

        return move

    def _wrap_change(self, original: Any) -> Any:
        def change(path: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(path, (str, bytes, os.PathLike)) and kwargs.get("dir_fd") is None:
                is_as_it_was = self._for_reading(path) is path and not self._is_open_place(path)
                if is_as_it_was and _is_folder(_real(path)):
                    return
                if is_as_it_was and _is_there(_real(path)):
                    self._for_writing(path, keep=True)
                path = self._for_reading(path)
            original(path, *args, **kwargs)

        return change

    def _wrap_link(self, original: Any) -> Any:
        def link(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
            if self._is_open_place(target) or any(key.endswith("dir_fd") for key in kwargs):
                original(source, target, *args, **kwargs)
                return
            if os.path.lexists(self._for_reading(target)):
                raise FileExistsError(17, "File exists", source, None, target)
            folder = os.path.dirname(_real(target)) if original.__name__ == "symlink" else ""  # noqa: PTH120
            found = self._for_reading(os.path.join(folder, os.fsdecode(source)))  # noqa: PTH118
            original(_real(found), self._for_writing(target, keep=False), *args, **kwargs)

        return link

    def _wrap_look(self, original: Any) -> Any:
        def look(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, (str, bytes, os.PathLike)) and kwargs.get("dir_fd") is None:
                path = self._for_reading(path)
            return original(path, *args, **kwargs)

        return look

    def _wrap_list(self, original: Any) -> Any:
        def names(path: Any = ".") -> Any:
            if not isinstance(path, (str, os.PathLike)) or not self._has_both(path):
                return original(path if isinstance(path, int) else self._for_reading(path or "."))
            own = original(self._mapped(path))
            return [*own, *(n for n in original(path) if not self._is_hidden(path, n, own))]

        return names

    def _wrap_scan(self, original: Any) -> Any:
        def scan(path: Any = ".") -> Any:
            if not isinstance(path, (str, os.PathLike)) or not self._has_both(path):
                return original(path if isinstance(path, int) else self._for_reading(path or "."))
            with original(self._mapped(path)) as entries:
                own = list(entries)
            hidden = [entry.name for entry in own]
            with original(path) as entries:
                kept = [e for e in entries if not self._is_hidden(path, e.name, hidden)]
            return _Entries([*own, *kept])

        return scan

    def _has_both(self, path: Any) -> bool:
        """Whether a folder is there as it was, and has files of the trial besides."""
        if self._is_open_place(path):
            return False
        return _is_folder(self._mapped(path)) and _is_folder(_real(path))

    def _is_hidden(self, folder: Any, name: str, own: list[str]) -> bool:
        return name in own or str(Path(_real(folder)) / name) in self._gone

    def _wrap_save(self, original: Any) -> Any:
        def save(what: Any, file: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(file, (str, os.PathLike)):
                file = self._for_writing(file, keep=False)
            original(what, file, *args, **kwargs)

        return save

    def _wrap_serialize(self, original: Any) -> Any:
        def serialize_file(what: Any, filename: Any, *args: Any, **kwargs: Any) -> None:
            original(what, self._for_writing(filename, keep=False), *args, **kwargs)

        return serialize_file

    def _is_open_place(self, path: Any) -> bool:
        return _real(path).startswith(self._open_places)

    def _mapped(self, path: Any) -> str:
        return str(self._folder / _real(path).lstrip(os.sep))

    def _for_writing(self, path: Any, *, keep: bool) -> Any:
        if self._is_open_place(path):
            return path
        mapped = self._mapped(path)
        Path(mapped).parent.mkdir(parents=True, exist_ok=True)
        real = _real(path)
        if keep and not Path(mapped).exists() and real not in self._gone and os.path.isfile(real):  # noqa: PTH113
            shutil.copyfile(real, mapped)
        self._gone.discard(real)
        return mapped

    def _for_reading(self, path: Any) -> Any:
        if self._is_open_place(path):
            return path
        mapped = self._mapped(path)
        if _is_there(mapped) and not self._has_both(path):
            return mapped
        # Gone for this trial: a name that is not there.
        return f"{mapped}.gone" if _real(path) in self._gone else path


def _safetensors() -> list[Any]:
    """It writes by itself. Its modules, before others take its functions from them."""
    try:
        return [import_module(f"safetensors{part}") for part in ("", ".numpy", ".torch")]
    except ImportError:
        return []


class _Entries:
    """What os.scandir gives: an iterator that can be closed."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Any:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held."""


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def _is_folder(path: str) -> bool:
    """By lstat, which is not mapped."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _real(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100
