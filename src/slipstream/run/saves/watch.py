"""Calls that could see a file before it is written: they wait for it."""

import builtins
import glob
import io
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.queues
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import torch

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches

# These look at one file; the others could show, move or announce any file near it.
_LOOKS = ("stat", "lstat", "access")
_TOUCHES = (
    "open", "listdir", "scandir", "replace", "rename", "renames", "remove", "unlink", "rmdir",
    "link", "symlink", "truncate", "chmod", "utime", "chown", "lchown", "setxattr", "getxattr",
    "listxattr", "removexattr",
)  # fmt: skip
# What they start, or end, knows nothing of our thread; a file has the mask of when it is made.
_LEAVES = (
    "_exit", "abort", "system", "kill", "killpg", "execv", "execve", "posix_spawn", "posix_spawnp",
    "umask",
)  # fmt: skip
_SIGNALS = ("raise_signal", "pthread_kill")
# With these a script says elsewhere that its file is there. Lines of a log do not.
_ANNOUNCES = ("replace", "rename", "renames", "link", "symlink", "mkdir", "mkfifo")
# Python's own library and ours only pass on what they are asked for.
_PASS_ON = (sysconfig.get_path("stdlib"), str(pathlib.Path(__file__).parents[2]), "<frozen ")

_ABILITIES = (
    os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids,
)  # fmt: skip


class UnderWay(Protocol):
    """A file that a thread writes."""

    is_busy: bool

    def touches(self, path: Any, *, nearby: bool) -> bool:
        """Whether a path has to do with it; `nearby`: or lies beside it."""

    def finish(self) -> None:
        """Wait until it is whole."""


def watch(patches: Patches, file: UnderWay) -> None:
    """Put the calls in place."""
    for name in _LOOKS:
        patches.replace(os, name, _by_path(file, nearby=False))
    for name in {*_TOUCHES, *_ANNOUNCES}:
        patches.replace(os, name, _by_path(file, nearby=True))
    for owner in (builtins, io):
        patches.replace(owner, "open", _by_path(file, nearby=True))
    patches.replace(torch, "load", _by_path(file, nearby=True))
    accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps its own
    for name in {*_LOOKS, *_TOUCHES, *_ANNOUNCES} if accessor is not None else ():
        patches.replace(accessor, name, _as_static(_by_path(file, nearby=name not in _LOOKS)))
    globber = getattr(glob, "_StringGlobber", None)  # and 3.13 those of Path.glob
    for name in ("lstat", "scandir"):
        patches.replace(globber, name, _by_path(file, nearby=True))
    for name in _LEAVES:
        patches.replace(os, name, _always(file))
    for name in _SIGNALS:
        patches.replace(signal, name, _always(file))
    patches.replace(subprocess.Popen, "__init__", _always(file))
    patches.replace(multiprocessing.process.BaseProcess, "start", _always(file))
    for queue in (multiprocessing.queues.Queue, multiprocessing.queues.SimpleQueue):
        patches.replace(queue, "put", _by_the_script(file))
    patches.replace(multiprocessing.connection.Connection, "send", _by_the_script(file))


def _by_path(file: UnderWay, *, nearby: bool) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if file.is_busy:
                given = (*args[:2], *kwargs.values())
                if (
                    _by_number(original, args, kwargs)
                    or any(file.touches(value, nearby=nearby) for value in given)
                    or (_announces(original, args, kwargs) and _is_scripts(sys._getframe(1)))
                ):
                    file.finish()
            return original(*args, **kwargs)

        for able in _ABILITIES:
            if original in able:
                able.add(call)
        return call

    return wrap


def _by_number(original: Any, args: Any, kwargs: Any) -> bool:
    """A folder that is given by the number of its open file may be any."""
    if any(name.endswith("dir_fd") and value is not None for name, value in kwargs.items()):
        return True
    lists = getattr(original, "__name__", "") in ("listdir", "scandir")
    return lists and any(isinstance(value, int) for value in (*args, *kwargs.values()))


def _announces(original: Any, args: Any, kwargs: Any) -> bool:
    """Whether it makes a file, or one of a name, and does not add to what is there."""
    name = getattr(original, "__name__", "")
    if name in _ANNOUNCES:
        return True
    how = args[1] if len(args) > 1 else kwargs.get("flags", kwargs.get("mode", ""))
    if name != "open" or not args:
        return False
    if isinstance(how, int):
        is_new, adds = bool(how & os.O_CREAT), bool(how & os.O_APPEND)
    else:
        is_new, adds = bool(set("wxa").intersection(how)), "a" in how
    return is_new and not (adds and os.path.exists(args[0]))  # noqa: PTH110


def _is_scripts(frame: FrameType | None) -> bool:
    """Whether the script calls this, itself or by Python's own library: not a package."""
    while frame is not None and _passes_on(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code)


def _passes_on(file: str) -> bool:
    return file.startswith(_PASS_ON) and ("-packages" not in file or file.startswith(_PASS_ON[1]))


def _as_static(wrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """For classes that hold plain functions of C, which are no methods."""
    return lambda original: staticmethod(wrap(original))


def _always(file: UnderWay) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            file.finish()
            return original(*args, **kwargs)

        return call

    return wrap


def _by_the_script(file: UnderWay) -> Callable[[Any], Any]:
    """A loader tells its workers of batches with the same functions."""

    def wrap(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if file.is_busy and is_users(sys._getframe(1).f_code):
                file.finish()
            return original(*args, **kwargs)

        return call

    return wrap
