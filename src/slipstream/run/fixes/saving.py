"""`async-save`: checkpoints are copied, and written while the loop goes on.

The file has the bytes that torch.save would have written. Until it is whole it has another name,
and calls that could see it wait: loading, listing, moving it, other processes, the end of the
script. An error of the disk is raised by the next save, or at the end. Where the process is killed
while a file is under way, that file is what it was before. Files that are written in a moment, or
may not fit on the disk, are written as the script says; and so are all while other processes could
be told of them.
"""

import os
import threading
import time
from typing import Any

import torch

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.saves.snapshot import NotPlain, tensor_bytes
from slipstream.run.saves.worth import Worth
from slipstream.run.saves.writer import Refused, Writer, has_ranks

NAME = "async-save"
_LEFT = (
    "files that are written in a moment, cannot be copied or may not fit, or that other processes "
    "may be told of, are written as the script says"
)


def applies(situation: Situation) -> tuple[bool, str]:
    """Where the loop saves."""
    if not situation.called("torch.save"):
        return False, "no torch.save was seen in its first steps"
    if has_ranks():
        return False, "other processes may wait for the file"
    return True, "torch.save in the loop"


def apply(situation: Situation) -> Undo:
    """Of files that are named; what is written into an open file is left alone."""
    writer = Writer()
    patches = Patches()
    patches.replace(torch, "save", _Saves(writer, situation).wrap)
    writer.install(patches)

    def undo() -> None:
        patches.undo()
        writer.close()

    return undo


class _Saves:
    def __init__(self, writer: Writer, situation: Situation) -> None:
        self._writer, self._situation = writer, situation
        self._worth = Worth()
        self._size = 0  # of the file under way

    def wrap(self, original: Any) -> Any:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            self._writer.finish()
            self._writer.raise_error()
            if self._writer.took_s is not None:
                self._worth.note(self._size, self._writer.took_s)
            size = None if args or kwargs or not _can_wait(f) else self._size_of(obj)
            if size is None:
                original(obj, f, *args, **kwargs)
            elif not self._worth.is_long(size) or not self._starts(obj, f, size):
                began = time.monotonic()
                original(obj, f)
                self._worth.note(size, time.monotonic() - began)
                self._situation.note(NAME, _LEFT, left=True)

        return save

    def _size_of(self, what: Any) -> int | None:
        try:
            return sum(tensor_bytes(what).values())
        except Exception:
            return None

    def _starts(self, what: Any, file: Any, size: int) -> bool:
        if NAME in self._situation.failures:
            return False
        try:
            self._writer.start(what, file)
        except (NotPlain, Refused, OSError):
            return False
        except Exception as error:
            self._situation.give_up(NAME, error)
            return False
        self._size = size
        self._situation.note(NAME, "files are copied, and written meanwhile")
        return True


def _can_wait(file: Any) -> bool:
    # Kept for each thread: the one that writes would not know of it.
    own = getattr(torch.serialization, "_serialization_tls", None)
    return (
        isinstance(file, (str, os.PathLike))
        and threading.current_thread() is threading.main_thread()
        and not getattr(own, "skip_data", False)
    )


FIX = Fix(
    NAME, "E", "checkpoints are written while the loop goes on", ("frequent-checkpoint",), applies,
    apply,
)  # fmt: skip
