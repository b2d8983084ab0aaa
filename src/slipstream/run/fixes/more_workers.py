"""`more-workers`: a loader has as many workers as keep up with the loop.

Each worker draws from random numbers of its own, so samples that draw are others: a fix that may
change numbers, which is kept if losses stay where they are with other seeds.
"""

from typing import Any

from torch.utils.data import DataLoader, MapDataPipe
from torch.utils.data.dataloader import _DatasetKind

from slipstream.doctor.attribute import attribute
from slipstream.doctor.record.places import users_place
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.too_few_workers import wanted_workers
from slipstream.loader.loader import Loader
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo

NAME = "more-workers"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where workers never rest, the loop waits, and there is room for more of them."""
    if not any(loader.workers for loader in situation.capture.loaders):
        return False, "no loader has workers"
    found = wanted(situation)
    if found is None:
        return False, "workers keep up with the loop, or there are no cores for more"
    loader, number = found
    if loader.kind != "map":
        return False, f"{loader.dataset} deals its samples to workers itself"
    return True, f"{loader.workers} workers of {loader.dataset} never rest: {number} would do"


def wanted(situation: Situation) -> tuple[Any, int] | None:
    """The recorded loader that feeds the loop, and how many workers it should have."""
    case = Case(situation.capture, attribute(situation.capture))
    number = wanted_workers(case)
    return None if number is None or case.loading is None else (case.loading.loader, number)


def apply(situation: Situation) -> Undo:
    """To loaders that are made like the one that was seen to be too slow."""
    patches = Patches()
    found = wanted(situation)

    def wrap(original: Any) -> Any:
        def get_iterator(loader: Any) -> Any:
            if found is None or not _is_like(loader, found[0]):
                return original(loader)
            given, number = loader.num_workers, found[1]
            loader.num_workers = number
            # Workers that wait for storage may be more than cores; torch would say that to a user.
            loader.check_worker_number_rationality = lambda: None
            try:
                iterator = original(loader)
            finally:
                loader.num_workers = given
                del loader.check_worker_number_rationality
            situation.note(NAME, f"DataLoader at {users_place()}: {number} instead of {given}")
            return iterator

        return get_iterator

    patches.replace(DataLoader, "_get_iterator", wrap)
    return patches.undo


def _is_like(loader: Any, seen: Any) -> bool:
    return (
        not isinstance(loader, Loader)
        and loader.num_workers == seen.workers
        and type(loader.dataset).__name__ == seen.dataset
        and loader._dataset_kind == _DatasetKind.Map
        and not isinstance(loader.dataset, MapDataPipe)
    )


FIX = Fix(
    NAME, "N", "as many workers as keep up with the loop", ("too-few-workers",), applies, apply
)
