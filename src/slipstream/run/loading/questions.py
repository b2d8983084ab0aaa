"""What a process that makes samples asks the file system: what lies in a file, whether there is
one, whether it may be read. Each answer is noted, so that the loop's process can ask again.
"""

import os
import pathlib
import stat
import sys
from collections.abc import Callable
from typing import Any

from slipstream.run.loading.stamps import lasting_stamp_of, stamp_of

Note = tuple[str, str, Any, Any]  # the question, the path, what else was given, the answer
_SYSTEM = ("/proc/", "/sys/", "/dev/")
_FILES_ALL_THE_SAME = "/dev/shm/"
# They are told no more than whether there is a file, and of which kind.
_ASK_WHETHER = frozenset({
    "exists", "lexists", "isfile", "isdir", "islink", "is_file", "is_dir", "is_symlink", "realpath",
    "resolve",
})  # fmt: skip
_OF_PATHS = frozenset({"genericpath", "posixpath", "pathlib"})

# Seen where they are called as attributes of `os`.
BY_OWN_NAMES = (os.stat, os.lstat, os.access, os.readlink)


def _kind_of(path: str, _: Any) -> int | None:
    try:
        return stat.S_IFMT(os.stat(path).st_mode)  # noqa: PTH116
    except (OSError, ValueError):
        return None


def _link_of(path: str, _: Any) -> tuple[int, str] | None:
    try:
        kind = stat.S_IFMT(os.lstat(path).st_mode)
        return kind, os.readlink(path) if stat.S_ISLNK(kind) else ""  # noqa: PTH115
    except (OSError, ValueError):
        return None


def _own_stamp_of(path: str, _: Any) -> Any:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _access_of(path: str, mode: Any) -> bool:
    return os.access(path, mode)


_ANSWERS: dict[str, Callable[[str, Any], Any]] = {
    "stamp": lambda path, _: stamp_of(path),
    "kind": _kind_of,
    "link": _link_of,
    "own stamp": _own_stamp_of,
    "access": _access_of,
}


def has_same_answer(note: Note) -> bool:
    """Whether the file system says now what it said then."""
    question, path, given, answer = note
    return bool(_ANSWERS[question](path, given) == answer)


class Questions:
    """Those of this process, from now on."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str, Any], Any] = {}
        self._is_noting = False
        self._replace("stat", lambda: "kind" if _asks_whether() else "stamp")
        self._replace("lstat", lambda: "link" if _asks_whether() else "own stamp")
        self._replace("readlink", lambda: "link")
        self._replace("access", lambda: "access")

    def take(self) -> list[Note]:
        """Those since the last call, each with its first answer."""
        notes, self._notes = self._notes, {}
        return [(*asked, answer) for asked, answer in notes.items()]

    def note(self, path: Any, question: str = "stamp", given: Any = None) -> None:
        """Before it is answered. A descriptor is of a file that was opened before."""
        if path is None or isinstance(path, int) or self._is_noting:
            return
        name = os.fsdecode(path)
        is_of_system = name.startswith(_SYSTEM) and not name.startswith(_FILES_ALL_THE_SAME)
        if is_of_system or (question, name, given) in self._notes:
            return
        self._is_noting = True
        try:
            lasting = question == "stamp"
            answer = lasting_stamp_of(name) if lasting else _ANSWERS[question](name, given)
        finally:
            self._is_noting = False
        self._notes[question, name, given] = answer

    def _replace(self, name: str, question: Callable[[], str]) -> None:
        original = getattr(os, name)

        def noted(path: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_noting:
                asked = question()
                if kwargs.get("follow_symlinks") is False and name == "stat":
                    asked = "link" if asked == "kind" else "own stamp"
                mode = (args[0] if args else kwargs.get("mode")) if name == "access" else None
                self.note(path, asked, mode)
            return original(path, *args, **kwargs)

        _put_in_place(name, original, noted)


def _asks_whether() -> bool:
    frame: Any = sys._getframe(3)
    while frame is not None and _module_of(frame) in _OF_PATHS:
        if frame.f_code.co_name in _ASK_WHETHER:
            return True
        frame = frame.f_back
    return False


def _module_of(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _put_in_place(name: str, original: Any, replacement: Any) -> None:
    setattr(os, name, replacement)
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        if original in able:
            able.add(replacement)
    accessor = getattr(pathlib, "_NormalAccessor", None)  # of Python 3.10
    if accessor is not None and getattr(accessor, name, None) is original:
        setattr(accessor, name, staticmethod(replacement))
