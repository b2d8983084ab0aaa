"""`threads`: torch computes with as many threads as there are cores for it.

Other threads divide sums elsewhere, and so may round differently.
"""

import os
import sys
from typing import Any

import torch

from slipstream.doctor.record.places import is_users
from slipstream.doctor.rules.replayed import compare
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo

NAME = "threads"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where another number was measured to be faster."""
    best = _best(situation)
    if best is None:
        return False, "not measured to be faster with another number"
    return True, f"{best['threads'][1]} instead of {best['threads'][0]} was measured to be faster"


def apply(situation: Situation) -> Undo:
    """In place of what the script asks for, and from its start if it does not."""
    best = _best(situation)
    asked = [torch.get_num_threads()]
    patches = Patches()
    process = os.getpid()

    def wrap(original: Any) -> Any:
        def set_num_threads(number: int) -> None:
            # Workers of loaders compute with one.
            if os.getpid() == process and is_users(sys._getframe(1).f_code):
                asked.append(number)
            else:
                original(number)

        return set_num_threads

    if best is not None:
        torch.set_num_threads(best["threads"][1])
        patches.replace(torch, "set_num_threads", wrap)

    def undo() -> None:
        patches.undo()
        torch.set_num_threads(asked[-1])

    return undo


def _best(situation: Situation) -> dict[str, Any] | None:
    found = [entry for entry in situation.capture.replays if entry["name"] == NAME]
    return next((entry for entry in found if compare(entry).is_sure), None)


FIX = Fix(
    NAME, "N", "torch computes with as many threads as there are cores", ("thread-count",), applies,
    apply,
)  # fmt: skip
