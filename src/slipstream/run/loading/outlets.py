"""What samples say in a process that makes them ahead, where it would stay in its memory: records
of `logging` that a handler keeps, warnings that somebody collects, prints to what the script
has put in the place of standard output, and seeds of a device. And files of libraries that say
nothing where they cannot write.
"""

import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

# They return False, or are not asked how it went.
_QUIET_WRITERS = {
    "cv2": ("imwrite", "imwritemulti", "VideoWriter", "FileStorage"),
    "torch": ("save",),
}
# A stream is asked for these by those who do not write.
_HARMLESS = frozenset({
    "closed", "encoding", "errors", "fileno", "flush", "isatty", "line_buffering", "mode", "name",
    "newlines", "readable", "seekable", "writable",
})  # fmt: skip


def watch_outlets(note: Callable[[], None]) -> None:
    """From now on `note` is called before any of that, in this process."""
    _watch_streams(note)
    _watch_records(note)
    show = warnings._showwarnmsg  # type: ignore[attr-defined]

    def noted(message: Any) -> None:
        note()
        show(message)

    warnings._showwarnmsg = noted  # type: ignore[attr-defined]
    _watch_files(note)


def has_device() -> bool:
    """To be asked before a process is forked: there, devices are gone."""
    return torch.cuda.is_available() or torch.xpu.is_available()


def watch_initial_seeds(note: Callable[[], None]) -> None:
    """They tell what the loop has seeded, which draws nothing."""
    asked = _noting(torch.initial_seed, note)
    torch.initial_seed = torch.random.initial_seed = asked


def watch_seeds(note: Callable[[], None]) -> None:
    """`torch.manual_seed` is for devices, too: here it reaches none, and asks why."""
    for device in (torch.cuda, torch.xpu):
        device._is_in_bad_fork = _noting(device._is_in_bad_fork, note)  # type: ignore[attr-defined]


def _watch_files(note: Callable[[], None]) -> None:
    for module, names in _QUIET_WRITERS.items():
        place = sys.modules.get(module)
        for name in names:
            if hasattr(place, name):
                setattr(place, name, _noting(getattr(place, name), note))


def _noting(original: Any, note: Callable[[], None]) -> Any:
    def noted(*args: Any, **kwargs: Any) -> Any:
        note()
        return original(*args, **kwargs)

    return noted


def _watch_streams(note: Callable[[], None]) -> None:
    # What goes to the process's own shows when they are flushed.
    if sys.stdout is not sys.__stdout__ and sys.stdout is not None:
        sys.stdout = _Noting(sys.stdout, note)
    if sys.stderr is not sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _Noting(sys.stderr, note)


class _Noting:
    """A stream that tells when somebody writes to it, and writes nothing."""

    def __init__(self, stream: Any, note: Callable[[], None]) -> None:
        self._stream = stream
        self._note = note

    def write(self, text: Any) -> int:
        self._note()
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name not in _HARMLESS:
            self._note()
        return getattr(self._stream, name)


def _watch_records(note: Callable[[], None]) -> None:
    of_loggers, of_handlers = logging.Logger.handle, logging.Handler.handle

    def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
        if _is_taken(logger, record):
            note()
        of_loggers(logger, record)

    def handle_one(handler: logging.Handler, record: logging.LogRecord) -> Any:
        note()
        return of_handlers(handler, record)

    owners: list[tuple[Any, Any]] = [(logging.Logger, handle), (logging.Handler, handle_one)]
    for owner, replacement in owners:
        owner.handle = replacement


def _is_taken(logger: logging.Logger, record: logging.LogRecord) -> bool:
    """Whether a record comes to somebody who may keep it."""
    if logger.filters or logging.getLogRecordFactory() is not logging.LogRecord:
        return True
    over: logging.Logger | None = logger
    has_handlers = False
    while over is not None:
        for handler in over.handlers:
            has_handlers = True
            if record.levelno >= handler.level and type(handler) is not logging.NullHandler:
                return True
        over = over.parent if over.propagate else None
    return not has_handlers and record.levelno >= logging.WARNING
