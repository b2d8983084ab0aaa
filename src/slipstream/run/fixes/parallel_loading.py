"""`parallel-loading`: batches of loaders without workers are made ahead in other processes, from
the random numbers that the loop's own process would have drawn.
"""

import os
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from slipstream.doctor.record.places import users_place
from slipstream.loader.loader import Loader
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.loading.single import AheadIterator, can_work_ahead, is_off

NAME = "parallel-loading"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where a loader reads in the loop's own process."""
    if not hasattr(os, "fork") or not hasattr(os, "pidfd_open"):
        return False, "processes cannot be forked here"
    found = [
        loader
        for loader in situation.capture.loaders
        if loader.workers == 0 and loader.kind == "map"
    ]
    if not found:
        return False, "no loader reads in the loop's own process"
    return True, f"{found[0].dataset} is read by the loop itself"


def apply(situation: Situation) -> Undo:
    """To every DataLoader with num_workers=0, if it turns out to be safe and faster."""
    patches = Patches()

    def wrap(original: Any) -> Any:
        def get_iterator(loader: Any) -> Any:
            if isinstance(loader, Loader) or not can_work_ahead(loader) or is_off(loader):
                return original(loader)
            if NAME in situation.failures:
                return original(loader)
            where = users_place()

            def say(line: str) -> None:
                situation.note(NAME, f"DataLoader at {where}: {line}")

            return AheadIterator(loader, say, partial(situation.give_up, NAME))

        return get_iterator

    patches.replace(DataLoader, "_get_iterator", wrap)
    return patches.undo


FIX = Fix(
    NAME,
    "E",
    "batches of loaders without workers are made ahead, from the same random numbers",
    ("no-workers",),
    applies,
    apply,
)
