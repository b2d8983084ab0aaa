"""Writes one checkpoint at a time in a thread: under another name, renamed when it is whole."""

import contextlib
import os
import resource
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from slipstream.patches import Patches
from slipstream.run.loading.depth import available_bytes
from slipstream.run.saves.ends import Ends
from slipstream.run.saves.others import Others
from slipstream.run.saves.snapshot import Buffers, snapshot, tensor_bytes
from slipstream.run.saves.watch import watch

_ROOM = 3  # times the bytes of a checkpoint that must be free for a copy of it
_DISK_ROOM = 2  # the same on the disk; the file that is replaced is still there
_BESIDES = 64 << 20  # what is not tensors, and what others write meanwhile


class Refused(Exception):
    """This one is better written as the script says."""


class Writer:
    """At most one file is under way: a second save waits for the first."""

    def __init__(self) -> None:
        self._buffers = Buffers()
        self.is_busy = False
        self._lock = threading.RLock()
        self._looking = threading.local()
        self._path, self._real = "", ""  # of the file under way
        self._what: Any = None
        self._thread: threading.Thread | None = None
        self._failed = False
        self.took_s: float | None = None  # for the last file, once it is there
        self._errors: list[RuntimeError] = []
        self._save: Callable[..., None] = torch.save
        # As they are without our watch, which would wait for the thread itself.
        self._replace, self._mkdir, self._rmdir = os.replace, os.mkdir, os.rmdir
        self._remove, self._chmod = os.remove, os.chmod
        self._is_on = True
        self._ends = Ends(self.finish)
        self._others = Others()
        os.register_at_fork(before=self._before_fork)

    def install(self, patches: Patches) -> None:
        """Calls that could see the file wait for it."""
        self._others.install(patches)
        watch(patches, self)
        self._ends.install(patches)

    def start(self, what: Any, file: Any) -> None:
        """Begin to write; raises the error of an earlier save. Raises `Refused` or `NotPlain`
        before anything has happened.
        """
        self.finish()
        self.raise_error()
        path = os.path.abspath(os.fspath(file))  # noqa: PTH100
        try:
            mode = _check_target(path)
            sizes = tensor_bytes(what)
            _check_room(sizes)
            _check_disk(path, sum(sizes.values()))
            if self._others.live() or has_ranks():
                raise Refused
        except Refused:
            self._buffers.clear()  # there may be no room because of them
            raise
        folder = str(Path(path).parent / f".{Path(path).name}.slipstream-{os.getpid()}")
        self._make_folder(folder)
        try:
            copy = snapshot(what, self._buffers)
            ready = _device_marks(sizes)
        except BaseException:
            self._buffers.clear()
            self._rmdir(folder)
            raise
        self._path, self._real = path, os.path.realpath(path)
        self._what, self._failed, self.is_busy = copy, False, True
        self.took_s = None
        # Not a daemon: Python waits for it at its end.
        self._thread = threading.Thread(
            target=self._write, args=(folder, mode, ready), name="slipstream-save", daemon=False
        )
        try:
            self._thread.start()
        except BaseException:  # a process may have no more
            self.is_busy, self._thread, self._what = False, None, None
            self._buffers.clear()
            self._rmdir(folder)
            raise
        self._ends.await_them()

    def _make_folder(self, folder: str) -> None:
        try:
            self._mkdir(folder)
        except FileExistsError:
            # Left by a process with our number that was killed: in a container they come again.
            for left in Path(folder).iterdir():
                self._remove(left)

    def touches(self, path: Any, *, nearby: bool) -> bool:
        """Whether a path is the file under way; where `nearby`, also what lies beside it and the
        folders above it.
        """
        if not isinstance(path, (str, bytes, os.PathLike)) or self._is_own_thread():
            return False
        if getattr(self._looking, "is_on", False):
            return False  # finding the real path looks at files, too
        self._looking.is_on = True
        try:
            other = os.path.realpath(os.fsdecode(path))
        finally:
            self._looking.is_on = False
        mine = self._real
        if other == mine or not nearby:
            return other == mine
        return Path(other).parent == Path(mine).parent or mine.startswith(
            other.rstrip(os.sep) + os.sep
        )

    def finish(self) -> None:
        """Until no file is under way. What fails is tried once more, as the script says."""
        if not self.is_busy or self._is_own_thread():
            return
        with self._lock:
            thread = self._thread
            if thread is None:
                return
            thread.join()
            if self._thread is not thread:
                return  # a signal's handler has saved meanwhile: what is under way now is another
            self.is_busy, self._thread = False, None
            self._ends.let_go()
            what, self._what = self._what, None
            if self._failed:
                self._try_again(what)
            self._buffers.give_back()

    def _try_again(self, what: Any) -> None:
        try:
            self._save(what, self._path)
        except Exception as error:
            problem = RuntimeError(f"torch.save could not write {self._path}: {error}")
            problem.__cause__ = error
            self._errors.append(problem)

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def raise_error(self) -> None:
        """Of a save that did not work, once."""
        if self._errors:
            raise self._errors.pop(0)

    def close(self) -> None:
        """Wait, let go of memory, and raise what has not been raised."""
        self.finish()
        self._is_on = False
        self._buffers.clear()
        self.raise_error()

    def _write(self, folder: str, mode: int | None, ready: dict[torch.device, Any]) -> None:
        path = self._path
        # The name of the file is part of its bytes: only the folder is another one.
        temporary = str(Path(folder) / Path(path).name)
        began = time.monotonic()
        try:
            with _beside(ready):
                self._save(self._what, temporary)
            if mode is not None:
                self._chmod(temporary, mode)
            self._replace(temporary, path)
            self.took_s = time.monotonic() - began
        except Exception:
            self._failed = True
            with contextlib.suppress(OSError):
                self._remove(temporary)
        finally:
            with contextlib.suppress(OSError):
                self._rmdir(folder)

    def _before_fork(self) -> None:
        if self._is_on:
            self.finish()


def has_ranks() -> bool:
    """Others may be told of the file by ways that nobody watches."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return True
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    return distributed.get_world_size() > 1


def _check_target(path: str) -> int | None:
    """The mode of a file that is replaced. A link or another's file is written, not replaced."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    is_own = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
    if not is_own or not os.access(path, os.W_OK) or _is_open(found):
        raise Refused
    return stat.S_IMODE(found.st_mode)


def _is_open(found: os.stat_result) -> bool:
    """Whether this process has it open: that would go on with the file that was replaced."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the listing's own
            if os.path.samestat(os.fstat(int(name)), found):
                return True
    return False


def _check_room(sizes: dict[torch.device, int]) -> None:
    for device, count in sizes.items():
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
        else:
            free = available_bytes()
        if _ROOM * count > free:
            raise Refused


def _check_disk(path: str, count: int) -> None:
    """An error belongs to the save that it happens in: what may not fit is written at once."""
    folder = os.statvfs(Path(path).parent)
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = folder.f_bavail * folder.f_frsize
    if limit != resource.RLIM_INFINITY:
        most = min(most, limit)
    if _DISK_ROOM * count + _BESIDES > most:
        raise Refused


def _device_marks(devices: Iterable[torch.device]) -> dict[torch.device, Any]:
    """When the copies on each device will be there."""
    return {
        device: torch.cuda.current_stream(device).record_event()
        for device in devices
        if device.type == "cuda"
    }


@contextlib.contextmanager
def _beside(ready: dict[torch.device, Any]) -> Iterator[None]:
    """Once the copies are there: streams of its own, so that what is read from a device does not
    wait for later steps. A thread has its own idea of the current device, too: without its name it
    would be the first.
    """
    with contextlib.ExitStack() as stack:
        for device, mark in ready.items():
            mark.synchronize()
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stack.enter_context(torch.cuda.stream(stream))
        yield
