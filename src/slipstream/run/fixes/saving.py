"""`async-save`: checkpoints are copied, and written while the loop goes on.

The file has the bytes that torch.save would have written. Until it is whole it has another name,
and calls that could see it wait: loading, listing, moving it, other processes, the end of the
script. An error of the disk is raised by the next save, or at the end. Where the process is killed
while a file is under way, that file is what it was before.
"""

import os
import threading
from typing import Any

import torch

from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.saves.snapshot import NotPlain
from slipstream.run.saves.writer import Refused, Writer

NAME = "async-save"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where the loop saves."""
    if not situation.called("torch.save"):
        return False, "no torch.save in the loop"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return False, "other processes may wait for the file"
    return True, "torch.save in the loop"


def apply(situation: Situation) -> Undo:
    """Of files that are named; what is written into an open file is left alone."""
    writer = Writer()
    patches = Patches()
    patches.replace(torch, "save", lambda original: _wrap(original, writer, situation))
    writer.install(patches)

    def undo() -> None:
        patches.undo()
        writer.close()

    return undo


def _wrap(original: Any, writer: Writer, situation: Situation) -> Any:
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        writer.finish()
        writer.raise_error()
        if args or kwargs or not _can_wait(f) or not _starts(writer, obj, f, situation):
            original(obj, f, *args, **kwargs)

    return save


def _starts(writer: Writer, what: Any, file: Any, situation: Situation) -> bool:
    if NAME in situation.failures:
        return False
    try:
        writer.start(what, file)
    except (NotPlain, Refused, OSError):
        return False
    except Exception as error:
        situation.give_up(NAME, error)
        return False
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
