"""`fast-loader`: batches come from workers in shared memory that is used again, more of them are
made ahead where some take long, and rows that lie in memory are gathered in one step.
"""

from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind

from slipstream.doctor.record.places import users_place
from slipstream.loader.loader import Loader
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.loading import programs, waits
from slipstream.run.loading.keeping import begin, end_idle, forget_all
from slipstream.run.loading.rows import RowsFetcher, suits, way_to_rows
from slipstream.run.loading.workers import why_not_slots
from slipstream.words import count_of

NAME = "fast-loader"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where torch's loaders read datasets by number."""
    loaders = [loader for loader in situation.capture.loaders if loader.kind == "map"]
    if not loaders:
        return False, "no DataLoader asks a dataset for samples by their indices"
    with_workers = [loader for loader in loaders if loader.workers]
    if with_workers:
        reads = "reads" if with_workers[0].workers == 1 else "read"
        workers = count_of(with_workers[0].workers, "worker")
        return True, f"{workers} {reads} {with_workers[0].dataset}"
    if any(loader.collate == "default_collate" for loader in loaders):
        return True, f"samples of {loaders[0].dataset} are looked up one by one"
    return False, "no loader has workers, and none has torch's own collate"


def apply(situation: Situation) -> Undo:
    """To every DataLoader that this is possible for."""
    patches = Patches()

    def wrap_get(original: Any) -> Any:
        def get_iterator(loader: Any) -> Any:
            if isinstance(loader, Loader) or NAME in situation.failures or why_not_slots(loader):
                return original(loader)
            where = users_place()

            def say(line: str) -> None:
                situation.note(NAME, f"DataLoader at {where}: {line}")

            generator = loader.generator or torch.default_generator
            before = generator.get_state()
            try:
                iterator = begin(loader, say)
            except Exception as error:
                generator.set_state(before)
                iterator = original(loader)  # fails as well where the script is to blame
                situation.give_up(NAME, error)
                return iterator
            say("batches come in shared memory, used again")
            return iterator

        return get_iterator

    def wrap_create(original: Any) -> Any:
        def create_fetcher(
            kind: Any, dataset: Any, auto_collation: Any, collate_fn: Any, drop_last: Any
        ) -> Any:
            arguments = (dataset, auto_collation, collate_fn, drop_last)
            try:
                is_usual = kind == _DatasetKind.Map and suits(auto_collation, collate_fn)
                if is_usual and way_to_rows(dataset) is not None:
                    line = f"rows of {type(dataset).__name__} are gathered in one step"
                    return RowsFetcher(*arguments, say=lambda: situation.note(NAME, line))
            except Exception as error:
                situation.give_up(NAME, error)
            return original(kind, *arguments)

        return staticmethod(create_fetcher)

    programs.watch(patches)
    waits.watch(patches, end_idle)
    patches.replace(DataLoader, "_get_iterator", wrap_get)
    patches.replace(_DatasetKind, "create_fetcher", wrap_create)

    def undo() -> None:
        patches.undo()
        forget_all()

    return undo


FIX = Fix(
    NAME,
    "E",
    "workers' batches lie in shared memory that is used again; rows are gathered in one step",
    (
        "per-sample-indexing",
        "large-transfer",
        "library-threads",
        "workers-restarted",
        "shallow-prefetch",
    ),
    applies,
    apply,
)
