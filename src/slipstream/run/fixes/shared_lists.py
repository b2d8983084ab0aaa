"""`shared-lists`: long lists of a dataset lie in memory that its workers share.

Reading an object of Python counts a reference, which writes to its page, and forked workers copy
the page. While workers are started, lists of plain items are replaced by others that read from one
shared block; the loop's own process has its lists back as soon as they run.
"""

import multiprocessing
from typing import Any

from torch.utils.data import DataLoader, IterDataPipe, MapDataPipe

from slipstream.doctor.record.places import users_place
from slipstream.loader.loader import Loader
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.loading.shared_list_places import LEAST_BYTES, Shelf, in_place

NAME = "shared-lists"
RULE = "copy-on-write"
_ITEM_BYTES = 100  # of a path, with its place in a list
LARGE = LEAST_BYTES // _ITEM_BYTES


def applies(situation: Situation) -> tuple[bool, str]:
    """Where workers were seen to copy what they share, or a dataset has so many samples that a list
    of them would be as large.
    """
    loaders = [
        loader
        for loader in situation.capture.loaders
        if loader.workers and loader.start_method == "fork"
    ]
    if not loaders:
        return False, "no loader forks workers"
    for finding in situation.report["findings"]:
        if finding["rule"] == RULE:
            return True, f"workers copy the dataset bit by bit ({finding['where']})"
    largest = max(loaders, key=lambda loader: loader.facts.get("samples") or 0)
    count = largest.facts.get("samples") or 0
    if count >= LARGE:
        return True, f"{largest.dataset} has {count:,} samples, which every worker would copy"
    of = f", which has {count:,} samples" if count else ""
    return False, f"workers copy little of {largest.dataset}{of}"


def apply(situation: Situation) -> Undo:
    """To datasets of loaders whose workers are forked."""
    patches = Patches()
    shelf = Shelf()

    def wrap(original: Any) -> Any:
        def get_iterator(loader: Any) -> Any:
            if NAME in situation.failures or not _is_for(loader):
                return original(loader)
            where = users_place()

            def say(line: str, *, left: bool = False) -> None:
                situation.note(NAME, f"DataLoader at {where}: {line}", left=left)

            try:
                views = shelf.views(loader.dataset, say)
            except Exception as error:
                situation.give_up(NAME, error)
                views = []
            with in_place(views):
                return original(loader)

        return get_iterator

    patches.replace(DataLoader, "_get_iterator", wrap)

    def undo() -> None:
        patches.undo()
        shelf.clear()

    return undo


def _is_for(loader: Any) -> bool:
    """Whether torch forks its workers, from a dataset that is an ordinary object."""
    if isinstance(loader, Loader) or not loader.num_workers:
        return False
    if isinstance(loader.dataset, (MapDataPipe, IterDataPipe)):
        return False
    context: Any = loader.multiprocessing_context or multiprocessing
    return bool(context.get_start_method() == "fork")


FIX = Fix(
    NAME, "E", "long lists of a dataset lie in memory that its workers share", (RULE,),
    applies, apply,
)  # fmt: skip
