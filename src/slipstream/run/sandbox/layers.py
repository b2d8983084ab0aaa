"""The user's files as a trial sees them: with what it has written, without what it has removed."""

import errno
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from slipstream.run.sandbox import plain
from slipstream.run.sandbox.gone import Gone

_MOST_LINKS = 40
_MOST_FOLDERS = 10_000
# Pipes and devices are no files, and links there lead to what has no name.
_SYSTEM = ("/proc/", "/sys/", "/dev/")
_SHARED = "/dev/shm"
# multiprocessing takes memory there, and removes the name at once.
_HEAP = f"{_SHARED}/pym-"
# Where named shared memory of trials lies; it is removed behind them.
TRIALS_OWN = f"{_SHARED}/slipstream-shared-"


class Found(NamedTuple):
    """A path of the user's without links. `own` is what the trial has there, `old` what was there
    before and can still be seen: both only for folders. Open places are not mapped.
    """

    path: str
    own: os.stat_result | None
    old: os.stat_result | None
    is_open: bool = False

    @property
    def any(self) -> os.stat_result | None:
        """What the trial sees."""
        return self.own or self.old

    @property
    def is_folder(self) -> bool:
        """Or not, or nothing there."""
        return self.any is not None and stat.S_ISDIR(self.any.st_mode)

    @property
    def is_only_old(self) -> bool:
        """Untouched by the trial."""
        return self.own is None and self.old is not None


class Layers:
    """`folder` has what the trial wrote, by the user's paths; its parent is free for all."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        self._inside = f"{self._folder}/"
        self._open = (f"{self._folder.rpartition('/')[0]}/", *_SYSTEM)
        plain.make_folders(self._folder)
        self.gone = Gone(f"{self._folder}.gone")
        self._folders: dict[str, str] = {}

    def mapped(self, path: str) -> str:
        """Where a path of `Found` has what the trial wrote."""
        return self._folder + path

    def users(self, path: str) -> str:
        """The user's path of one that may be mapped."""
        if path.startswith(self._inside):
            return path[len(self._folder) :]
        return "/" if path == self._folder else path

    def find(self, path: Any, *, follow: bool = True) -> Found:
        """What a trial has at a path; `follow`: where a link there leads."""
        text = os.fsdecode(path)
        if not text:
            return Found("", None, None, is_open=True)
        if self.gone.has_news():
            self._folders.clear()
        if not text.startswith("/"):
            text = f"{plain.getcwd()}/{text}"
        for _ in range(_MOST_LINKS):
            text = self.users(text)
            if _is_systems(text):
                return Found(text, None, None, is_open=True)
            folder, name = text.rsplit("/", 1)
            if name in ("", ".", ".."):
                found = self._at(self._resolved(text))
            else:
                found = self._at(f"{self._resolved(folder)}/{name}")
            if not follow or not _is_link(found.any) or found.path.startswith(_SYSTEM[:2]):
                return found
            target = self._target(found)
            folder = "" if target.startswith("/") else found.path.rpartition("/")[0]
            text = f"{folder}/{target}"
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def for_reading(self, path: Any, *, follow: bool = True) -> str:
        """Where the system finds it. What is not there has a name that is not there."""
        found = self.find(path, follow=follow)
        if found.is_open:
            return found.path
        return self.mapped(found.path) if found.old is None else found.path or "/"

    def for_writing(self, path: Any, *, keep: bool, follow: bool = True) -> str:
        """Where the trial may write it; `keep`: the old content is there."""
        found = self.find(path, follow=follow)
        if found.is_open or (found.is_only_old and _is_special(found.old)):
            return found.path
        if found.is_only_old and (keep or found.is_folder):
            self.bring(found)
        else:
            self.make_place(found.path)
        return self.mapped(found.path)

    def make_place(self, path: str) -> None:
        """For something to be written; not where the user has no folder for it."""
        folder = path.rpartition("/")[0]
        above = self._at(folder)
        if above.own is None and above.is_folder:
            plain.make_folders(self.mapped(folder))

    def bring_whole(self, found: Found) -> None:
        """Have a file or a folder with all that is below as the trial's own."""
        if found.is_folder:
            plain.check_room(found.path, self._old_bytes(found), self._folder)
        self.bring(found, whole=True)

    def _old_bytes(self, found: Found) -> int:
        if found.old is None:
            return 0
        if not stat.S_ISDIR(found.old.st_mode):
            return found.old.st_size
        return sum(self._old_bytes(self._at(f"{found.path}/{name}")) for name in self.names(found))

    def bring(self, found: Found, *, whole: bool = False) -> None:
        """Have what is old as the trial's own; `whole`: with all that is below."""
        self.make_place(found.path)
        old, mapped = found.old, self.mapped(found.path)
        if old is None:
            return
        if stat.S_ISDIR(old.st_mode):
            plain.make_folders(mapped)
            for name in self.names(found) if whole else ():
                self.bring(self._at(f"{found.path}/{name}"), whole=True)
        elif stat.S_ISLNK(old.st_mode):
            plain.symlink(plain.readlink(found.path), mapped)
        elif not _is_special(old):
            plain.copy_file(found.path, mapped, f"{self._folder}.part")

    def names(self, found: Found) -> list[str]:
        """In a folder: those that were there, then new ones."""
        names: dict[str, None] = {}
        if found.old is not None:
            for name in plain.listdir(found.path or "/"):
                if not self.gone.hides(f"{found.path}/{name}"):
                    names[name] = None
        if found.own is not None:
            names.update(dict.fromkeys(plain.listdir(self.mapped(found.path))))
        return list(names)

    def is_as_it_was(self, found: Found) -> bool:
        """Whether a folder has nothing new, and nothing less."""
        return found.is_open or (found.is_only_old and not self.gone.hides_in(found.path))

    def _at(self, path: str) -> Found:
        """A path without links above its last part."""
        place = f"{path}/"
        if place.startswith(self._open) and not _is_shared(path):
            return Found(path, None, plain.look(path), is_open=True)
        own = plain.look(self._folder + path)
        if self.gone.hides(path) or (own is not None and not stat.S_ISDIR(own.st_mode)):
            return Found(path, own, None)
        old = plain.look(path or "/")
        if own is not None and old is not None and not stat.S_ISDIR(old.st_mode):
            old = None
        return Found(path, own, old)

    def _resolved(self, text: str) -> str:
        """A folder's path without links."""
        found = self._folders.get(text)
        if found is None:
            if len(self._folders) > _MOST_FOLDERS:
                self._folders.clear()
            found = self._folders[text] = self._walk(text)
        return found

    def _walk(self, text: str) -> str:
        parts, path, links = text.split("/")[::-1], "", 0
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            if part == "..":
                path = path.rpartition("/")[0]
                continue
            found = self._at(f"{path}/{part}")
            if not _is_link(found.any):
                path = found.path
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), text)
            target = self._target(found)
            path = "" if target.startswith("/") else path
            parts.extend(target.split("/")[::-1])
        # The folder itself may lie behind a link.
        return self.users(path).rstrip("/")

    def _target(self, found: Found) -> str:
        """Of a link."""
        return plain.readlink(found.path if found.own is None else self.mapped(found.path))


def _is_shared(path: str) -> bool:
    if path != _SHARED and not path.startswith(f"{_SHARED}/"):
        return False
    return not path.startswith((_HEAP, TRIALS_OWN))


def _is_systems(text: str) -> bool:
    return text.startswith(_SYSTEM) and "/.." not in text and not _is_shared(text)


def _is_link(found: os.stat_result | None) -> bool:
    return found is not None and stat.S_ISLNK(found.st_mode)


def _is_special(found: os.stat_result | None) -> bool:
    """A pipe, a socket, a device."""
    if found is None:
        return False
    mode = found.st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
