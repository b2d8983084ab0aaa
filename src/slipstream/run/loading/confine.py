"""A child process that makes samples ahead must leave no trace: what it would write or print is the
script's own to write, when its turn comes. And it notes which files it reads: what the loop does to
them meanwhile makes its batches old.
"""

import contextlib
import fcntl
import os
import signal
import stat
import sys
from typing import Any

from slipstream.run.loading.outlets import watch_initial_seeds, watch_outlets, watch_seeds
from slipstream.run.loading.questions import Note, Questions

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ACTIONS = """
    os.remove os.rename os.mkdir os.rmdir os.link os.symlink os.truncate os.chmod os.chown os.utime
    os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn os.kill os.killpg os.putenv
    os.unsetenv os.chdir subprocess.Popen socket.connect socket.bind socket.sendto shutil.rmtree
    shutil.move shutil.copyfile sqlite3.connect
"""
_FORBIDDEN = frozenset(_ACTIONS.split())
_SAYS = "prints or writes"
_LISTING = frozenset({"os.listdir", "os.scandir"})


class Confinement:
    """From now on for this process. `take_trace` says what it has tried since the last call."""

    def __init__(
        self, keep: frozenset[int], places: dict[int, int], *, seeds_device: bool = False
    ) -> None:
        """`keep` are descriptors that stay what they are, and `places` those of `file_places`.
        `seeds_device`: the loop has a device whose seeds count.
        """
        sys.dont_write_bytecode = True
        self._tried = ""
        self._places = places
        self._sink = os.memfd_create("slipstream-sink", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._keep = keep | {self._sink, self._nothing}
        for descriptor in _open_descriptors():
            if descriptor not in self._keep:
                self._cut_off(descriptor)
        for number in signal.valid_signals() - {signal.SIGINT}:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        self._questions = Questions()
        self._counts = _counts_of_writing()
        self._flush()
        self._size, self._written = self._sink_size(), self._bytes_written()
        sys.addaudithook(self._audit)
        watch_outlets(self._note_said)
        watch_initial_seeds(self._note_asked)
        if seeds_device:
            watch_seeds(self._note_seeded)

    def take_trace(self) -> str:
        """Empty where it has only read."""
        self._flush()
        size, tried, self._tried = self._sink_size(), self._tried, ""
        written = self._bytes_written()
        if not tried and (size != self._size or written != self._written):
            tried = _SAYS
        self._size, self._written = size, written
        return tried

    def take_questions(self) -> list[Note]:
        """What it has asked the file system since the last call."""
        return self._questions.take()

    def _cut_off(self, descriptor: int) -> None:
        try:
            mode = os.fstat(descriptor).st_mode
            access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        except OSError:
            return
        if descriptor in (1, 2):
            os.dup2(self._sink, descriptor)
        elif stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
            # Who reads from it waits until all who could write have closed it.
            os.dup2(self._nothing, descriptor, inheritable=False)
        elif stat.S_ISREG(mode) and access != os.O_RDONLY:
            os.dup2(self._sink, descriptor, inheritable=False)
        elif stat.S_ISREG(mode):
            self._reopen(descriptor)

    def _reopen(self, descriptor: int) -> None:
        """Two processes that read from one open file move each other's place in it."""
        try:
            place = self._places.get(descriptor)
            if place is None:
                place = os.lseek(descriptor, 0, os.SEEK_CUR)
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.dup2(self._nothing, descriptor, inheritable=False)
            return
        os.lseek(own, place, os.SEEK_SET)
        os.dup2(own, descriptor, inheritable=False)
        os.close(own)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if not isinstance(flags, int) or not flags & _WRITING or path == os.devnull:
                self._questions.note(path)
                return
        elif event in _LISTING:
            self._questions.note(args[0])
            return
        elif event not in _FORBIDDEN:
            return
        self._tried = f"does {event}"
        raise PermissionError(f"{event} in a process that only reads ahead")

    def _note_said(self) -> None:
        self._tried = self._tried or _SAYS

    def _note_asked(self) -> None:
        self._tried = self._tried or "asks how torch was seeded"

    def _note_seeded(self) -> None:
        self._tried = self._tried or "seeds the device, or asks for it"

    def _bytes_written(self) -> bytes:
        """By any library, as the kernel counts them."""
        if self._counts is None:
            return b""
        lines = os.pread(self._counts, 512, 0).splitlines()
        return next((line for line in lines if line.startswith(b"wchar")), b"")

    def _flush(self) -> None:
        streams: list[Any] = [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__]
        for stream in streams:
            with contextlib.suppress(Exception):  # closed, or none at all
                stream.flush()

    def _sink_size(self) -> int:
        return os.fstat(self._sink).st_size


def _counts_of_writing() -> int | None:
    try:
        return os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not counted by this kernel
        return None


def file_places() -> dict[int, int]:
    """How far files are read that are open. To be asked before a process is forked: behind that,
    the other one reads on, and they have one place.
    """
    places = {}
    for descriptor in _open_descriptors():
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                places[descriptor] = os.lseek(descriptor, 0, os.SEEK_CUR)
    return places


def _open_descriptors() -> list[int]:
    # The listing itself has one, which is closed by now.
    return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
