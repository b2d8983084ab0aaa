"""`added-workers`: as many workers as keep up with the loop, where samples draw nothing.

Random numbers, a worker's number and changes of the dataset are noticed in the worker, and the
batch is made again by workers as the script has asked for, which go on from there.
"""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter

from slipstream.doctor.record.places import users_place
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Say, Situation, Undo
from slipstream.run.fixes import more_workers
from slipstream.run.loading.added import Guard, as_wanted, guard, why_not
from slipstream.run.loading.checked import Checked, Flag
from slipstream.run.loading.recorded import Recorded
from slipstream.run.loading.watch import Watch

NAME = "added-workers"


class _Added:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._found = more_workers.wanted(situation)
        self._flags: WeakKeyDictionary[DataLoader[Any], tuple[Flag, Recorded]] = WeakKeyDictionary()
        self._left: set[str | None] = set()  # places of loaders that are as they were
        self._starting: Flag | None = None  # whose workers are being started

    def wrap_get(self, original: Any) -> Any:
        def get_iterator(loader: Any) -> Any:
            found, where = self._found, users_place()
            is_meant = found is not None and more_workers.is_like(loader, found[0])
            if not is_meant or where in self._left or NAME in self._situation.failures:
                return original(loader)
            said = ""

            def say(line: str, *, left: bool = False) -> None:
                nonlocal said
                line = f"DataLoader at {where}: {line}"
                self._situation.note(NAME, line, instead_of=said, left=left)
                said = line
                if left:
                    self._left.add(where)

            try:
                why = why_not(loader) or Watch([loader.dataset, loader.collate_fn]).why_not
            except Exception as error:
                self._situation.give_up(NAME, error)
                return original(loader)
            if why:
                say(f"left alone: {why}", left=True)
                return original(loader)
            return self._start(original, loader, say)

        return get_iterator

    def _start(self, original: Any, loader: Any, say: Say) -> Any:
        assert self._found is not None
        number = self._found[1]
        flag, sampler = self._flags.setdefault(loader, (Flag(), Recorded(loader._index_sampler)))
        if sampler.original is not loader._index_sampler:
            return original(loader)
        before = (loader.generator or torch.default_generator).get_state()
        self._starting = flag
        try:
            with as_wanted(loader, number, sampler):
                iterator = original(loader)
        finally:
            self._starting = None
        if isinstance(iterator, _MultiProcessingDataLoaderIter):
            guard(iterator, Guard(loader, flag, before, say))
            say(f"{number} workers instead of {loader.num_workers}, as samples draw nothing")
        return iterator

    def wrap_create(self, original: Any) -> Any:
        def create_fetcher(*args: Any) -> Any:
            fetcher = original(*args)
            if self._starting is None or get_worker_info() is None:
                return fetcher
            try:
                return Checked(fetcher, self._starting)
            except Exception:  # what cannot be told is the script's own workers' business
                self._starting.raise_()
                return fetcher

        return staticmethod(create_fetcher)


def apply(situation: Situation) -> Undo:
    """To loaders that are made like the one that was seen to be too slow."""
    patches = Patches()
    added = _Added(situation)
    patches.replace(DataLoader, "_get_iterator", added.wrap_get)
    patches.replace(_DatasetKind, "create_fetcher", added.wrap_create)
    return patches.undo


FIX = Fix(
    NAME, "E", "as many workers as keep up with the loop, where samples draw nothing",
    ("too-few-workers",), more_workers.applies, apply,
)  # fmt: skip
