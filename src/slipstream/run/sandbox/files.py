"""Python's functions for files, each with its paths mapped."""

import builtins
import contextlib
import errno
import io
import os
import shutil
import stat
from collections.abc import Callable
from typing import Any

from slipstream.run.sandbox import plain
from slipstream.run.sandbox.folders import Folders
from slipstream.run.sandbox.layers import Found, Layers

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LOOKS = ("stat", "access", "chdir", "statvfs", "getxattr", "listxattr")
_LOOKS_AT_LINKS = ("lstat", "readlink")
_CHANGES = ("chmod", "chown", "truncate", "utime", "setxattr", "removexattr")
_MAKES = ("mkdir", "mkfifo", "mknod")


class Files:
    """All of them, by the function that they take the place of."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers

    def wrapped(self) -> dict[Any, Any]:
        """Functions that this system does not have are left out."""
        layers, folders = self._layers, Folders(self._layers)
        wraps: dict[str, Callable[[Any], Any]] = {
            "open": self._open_number, "rename": self._move, "replace": self._move,
            "symlink": self._symlink, "link": self._link, "lchown": self._change_link,
            "remove": self._remove, "unlink": self._remove, "rmdir": self._remove_folder,
            "listdir": folders.listdir, "scandir": folders.scandir,
            **dict.fromkeys(_LOOKS, self._look),
            **dict.fromkeys(_LOOKS_AT_LINKS, self._look_at_link),
            **dict.fromkeys(_CHANGES, self._change), **dict.fromkeys(_MAKES, self._make),
        }  # fmt: skip
        found = {getattr(os, name): wrap for name, wrap in wraps.items() if hasattr(os, name)}
        wrapped = {original: wrap(original) for original, wrap in found.items()}
        getcwd, getcwdb = os.getcwd, os.getcwdb
        wrapped[getcwd] = lambda: layers.users(getcwd())
        wrapped[getcwdb] = lambda: os.fsencode(layers.users(os.fsdecode(getcwdb())))
        wrapped[builtins.open] = self._open(builtins.open)
        wrapped[io.FileIO] = self._raw_file()
        wrapped[shutil.rmtree] = self._remove_tree(shutil.rmtree)
        return wrapped

    def _open(self, original: Any) -> Any:
        layers = self._layers

        def open_mapped(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            has_opener = kwargs.get("opener") is not None or any(args[5:])
            if not is_path(file) or not isinstance(mode, str) or has_opener:
                return original(file, mode, *args, **kwargs)
            with _AsGiven(file):
                opened = original(_opened(layers, file, mode), mode, *args, **kwargs)
            raw = getattr(opened, "buffer", opened)
            with contextlib.suppress(AttributeError):
                getattr(raw, "raw", raw).name = os.fspath(file)
            return opened

        return open_mapped

    def _raw_file(self) -> type:
        layers, kind = self._layers, io.FileIO

        class Kind(type):
            """Files that Python has opened by itself are of it, too."""

            def __instancecheck__(cls, thing: Any) -> bool:
                return (
                    isinstance(thing, kind) if cls is FileIO else super().__instancecheck__(thing)
                )

            def __subclasscheck__(cls, other: type) -> bool:
                return (
                    issubclass(other, kind) if cls is FileIO else super().__subclasscheck__(other)
                )

        class FileIO(kind, metaclass=Kind):  # type: ignore[misc, valid-type]
            def __init__(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
                has_opener = kwargs.get("opener") is not None or any(args[1:])
                if not is_path(file) or has_opener:
                    super().__init__(file, mode, *args, **kwargs)
                    return
                with _AsGiven(file):
                    super().__init__(_opened(layers, file, mode), mode, *args, **kwargs)
                self.name = os.fspath(file)

        return FileIO

    def _open_number(self, original: Any) -> Any:
        layers = self._layers

        def open_mapped(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> Any:
            if not is_path(path):
                return original(path, flags, mode, dir_fd=dir_fd)
            placed, follow = _placed(path, dir_fd), not flags & (os.O_NOFOLLOW | os.O_EXCL)
            if flags & _WRITING:
                # Without O_CREAT it has to be there to be emptied.
                keep = not (flags & os.O_TRUNC and flags & os.O_CREAT)
                mapped = layers.for_writing(placed, keep=keep, follow=follow)
            else:
                mapped = layers.for_reading(placed, follow=follow)
            with _AsGiven(path):
                return original(like(path, mapped), flags, mode)

        return open_mapped

    def _look(self, original: Any, *, follow: bool = True) -> Any:
        layers = self._layers

        def look(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if not is_path(path):
                return original(path, *args, **kwargs)
            placed = _placed(path, kwargs.pop("dir_fd", None))
            follows = follow and kwargs.get("follow_symlinks", True)
            mapped = layers.for_reading(placed, follow=follows)
            try:
                return original(like(path, mapped), *args, **kwargs)
            except OSError as error:
                error.filename = path
                raise

        return look

    def _look_at_link(self, original: Any) -> Any:
        return self._look(original, follow=False)

    def _change(self, original: Any, *, follow: bool = True) -> Any:
        layers = self._layers

        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_path(path):
                return original(path, *args, **kwargs)
            placed = _placed(path, kwargs.pop("dir_fd", None))
            follows = follow and kwargs.get("follow_symlinks", True)
            found = layers.find(placed, follow=follows)
            if found.is_only_old and not found.is_open:
                if found.is_folder:
                    return None  # a trial does not look at such things of folders
                layers.bring(found)
            with _AsGiven(path):
                return original(like(path, self._target(found)), *args, **kwargs)

        return change

    def _change_link(self, original: Any) -> Any:
        return self._change(original, follow=False)

    def _make(self, original: Any) -> Any:
        layers = self._layers

        def make(path: Any, *args: Any, **kwargs: Any) -> None:
            placed = _placed(path, kwargs.pop("dir_fd", None))
            found = layers.find(placed, follow=False)
            if found.any is not None:
                raise _error(errno.EEXIST, path)
            with _AsGiven(path):
                original(self._new(found), *args, **kwargs)

        return make

    def _remove(self, original: Any, *, folders: bool = False) -> Any:
        layers = self._layers

        def remove(path: Any, *, dir_fd: Any = None) -> None:
            found = layers.find(_placed(path, dir_fd), follow=False)
            if not found.is_open and found.any is not None:
                if found.is_folder and not folders:
                    raise _error(errno.EISDIR, path)
                if folders and not found.is_folder:
                    raise _error(errno.ENOTDIR, path)
                if folders and layers.names(found):
                    raise _error(errno.ENOTEMPTY, path)
            if found.is_open or not found.is_only_old:
                with _AsGiven(path):
                    original(self._target(found))
            self._let_go(found)

        return remove

    def _remove_folder(self, original: Any) -> Any:
        return self._remove(original, folders=True)

    def _remove_tree(self, original: Any) -> Any:
        layers = self._layers

        def rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
            if not is_path(path):
                original(path, *args, **kwargs)
                return
            found = layers.find(_placed(path, kwargs.pop("dir_fd", None)), follow=False)
            if not found.is_open and found.is_only_old:
                layers.bring(found)  # for the function to look at
            if found.is_folder:
                self._let_go(found)  # before: all below is the trial's own then
            with _AsGiven(path):
                original(self._target(found), *args, **kwargs)

        return rmtree

    def _move(self, original: Any) -> Any:
        layers = self._layers

        def move(src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
            source = layers.find(_placed(src, src_dir_fd), follow=False)
            target = layers.find(_placed(dst, dst_dir_fd), follow=False)
            if source.is_open and target.is_open:
                original(source.path, target.path)
                return
            if source.path == target.path and source.any is not None:
                return
            wrong = self._why_not(source, target)
            if wrong:
                raise OSError(wrong, os.strerror(wrong), src, None, dst)
            if not source.is_open:
                layers.bring_whole(source)
            with _AsGiven(src, dst):
                original(self._target(source), self._new(target))
            self._let_go(source)
            self._let_go(target)

        return move

    def _why_not(self, source: Found, target: Found) -> int:
        """What the system would say of a move, or 0."""
        if source.any is None or target.any is None:
            return 0
        if target.is_folder and not source.is_folder:
            return errno.EISDIR
        if source.is_folder and not target.is_folder:
            return errno.ENOTDIR
        return errno.ENOTEMPTY if target.is_folder and self._layers.names(target) else 0

    def _symlink(self, original: Any) -> Any:
        layers = self._layers

        def symlink(src: Any, dst: Any, target_is_directory: bool = False, **kwargs: Any) -> None:
            target = layers.find(_placed(dst, kwargs.pop("dir_fd", None)), follow=False)
            if target.any is not None:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
            with _AsGiven(src, dst):
                # As the script has it: whoever comes by here follows it through the layers.
                original(os.fsdecode(src), self._new(target), target_is_directory, **kwargs)
            layers.gone.note_links()

        return symlink

    def _link(self, original: Any) -> Any:
        layers = self._layers

        def link(src: Any, dst: Any, **kwargs: Any) -> None:
            source = layers.find(_placed(src, kwargs.pop("src_dir_fd", None)), follow=False)
            target = layers.find(_placed(dst, kwargs.pop("dst_dir_fd", None)), follow=False)
            if source.any is not None and target.any is not None:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
            if not source.is_open and source.is_only_old:
                layers.bring(source)
            with _AsGiven(src, dst):
                original(self._target(source), self._new(target), **kwargs)

        return link

    def _target(self, found: Found) -> str:
        """Where the system may change it."""
        return found.path if found.is_open else self._layers.mapped(found.path)

    def _new(self, found: Found) -> str:
        if not found.is_open:
            self._layers.make_place(found.path)
        return self._target(found)

    def _let_go(self, found: Found) -> None:
        """It is not there any more, or something else is."""
        if found.is_open:
            return
        if plain.look(found.path) is not None:  # also where its own has hidden it
            self._layers.gone.add(found.path)
        elif found.own is not None and not stat.S_ISREG(found.own.st_mode):
            self._layers.gone.note_links()


def is_path(path: Any) -> bool:
    """And not the number of an open file."""
    return isinstance(path, (str, bytes, os.PathLike))


def like(given: Any, path: str) -> Any:
    """Text or bytes, as it was given."""
    return os.fsencode(path) if isinstance(given, bytes) else path


def _placed(path: Any, folder: int | None) -> Any:
    """A path that is relative to an open folder."""
    if folder is None or not is_path(path):
        return path
    return os.path.join(plain.path_of(folder), os.fsdecode(path))  # noqa: PTH118


def _error(number: int, path: Any) -> OSError:
    return OSError(number, os.strerror(number), path)


def _opened(layers: Layers, file: Any, mode: str) -> Any:
    """The path to open instead."""
    if any(letter in mode for letter in "wax+"):
        mapped = layers.for_writing(file, keep="w" not in mode, follow="x" not in mode)
    else:
        mapped = layers.for_reading(file)
    return like(file, mapped)


class _AsGiven:
    """Errors tell of the paths that the script knows."""

    def __init__(self, path: Any, other: Any = None) -> None:
        self._paths = path, other

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = self._paths[0]
            if self._paths[1] is not None:
                error.filename2 = self._paths[1]
