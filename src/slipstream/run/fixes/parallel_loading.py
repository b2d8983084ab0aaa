"""`parallel-loading`: batches of loaders without workers are made ahead in other processes, from
the random numbers that the loop's own process would have drawn.
"""

import math
import os
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import DataLoader

from slipstream.doctor.capture import NEXT
from slipstream.doctor.record.places import users_place
from slipstream.doctor.rules.no_workers import LEAST_SHARE_AHEAD
from slipstream.loader.loader import Loader
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.loading import crew, parked, waits
from slipstream.run.loading.ahead import LEAST_BATCH_S
from slipstream.run.loading.single import AheadIterator, can_work_ahead, is_off, lies_in_memory

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
    times = {loader.id: _batch_ms(situation, loader) for loader in found}
    slowest = max(found, key=lambda loader: times[loader.id] or math.inf)
    longest = times[slowest.id]
    if longest is not None and longest < 1000 * LEAST_BATCH_S:
        return False, f"a batch takes the loop {longest:.1f} ms, too little to be worth it"
    step_ms = situation.report.get("step_ms") or 0.0
    if longest is not None and not situation.on_device and longest < LEAST_SHARE_AHEAD * step_ms:
        return False, f"a batch takes {longest:.1f} of {step_ms:.0f} ms; the model has the cores"
    return True, f"{slowest.dataset} is read by the loop itself"


def _batch_ms(situation: Situation, loader: Any) -> float | None:
    """What it takes the loop to get one, at its better moments; None where it was not seen."""
    times = sorted(
        (span.end - span.start) * 1e-6
        for span in situation.capture.spans
        if span.kind == NEXT and span.detail[0] == loader.id and span.detail[2] >= 0
    )
    return times[len(times) // 4] if times else None


def apply(situation: Situation) -> Undo:
    """To every DataLoader with num_workers=0, if it turns out to be safe and faster."""
    patches = Patches()
    said: WeakKeyDictionary[DataLoader[Any], str] = WeakKeyDictionary()
    latest: dict[tuple[str | None, bool], str] = {}

    def wrap(original: Any) -> Any:
        def get_iterator(loader: Any) -> Any:
            if isinstance(loader, Loader) or not can_work_ahead(loader) or is_off(loader):
                return original(loader)
            if NAME in situation.failures:
                return original(loader)
            where = users_place()
            try:
                is_in_memory = lies_in_memory(loader)
            except Exception as error:
                situation.give_up(NAME, error)
                return original(loader)
            if is_in_memory:
                situation.note(NAME, f"DataLoader at {where}: it lies in memory", left=True)
                return original(loader)

            def say(line: str, *, left: bool = False) -> None:
                line = f"DataLoader at {where}: {line}"
                # A script may make a loader for every epoch: one line for all of them.
                earlier = said.get(loader) or latest.get((where, left), "")
                situation.note(NAME, line, instead_of=earlier, left=left)
                said[loader] = latest[where, left] = line

            return AheadIterator(loader, say, partial(situation.give_up, NAME))

        return get_iterator

    patches.replace(DataLoader, "_get_iterator", wrap)
    waits.watch(patches, crew.end_all)

    def undo() -> None:
        patches.undo()
        parked.end_all()

    return undo


FIX = Fix(
    NAME,
    "E",
    "batches of loaders without workers are made ahead, from the same random numbers",
    ("no-workers",),
    applies,
    apply,
)
