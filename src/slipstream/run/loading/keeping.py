"""Workers that live on from one pass over a loader to the next, where nobody can tell.

torch starts workers anew for every pass, with the dataset as it is then and with seeds drawn for
that pass. Those of the pass before are as good if the dataset is what it was when they were
started, in the loop's process and in theirs, and if they begin from the new seeds.
"""

import contextlib
import operator
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from slipstream.run.loading.contents import contents
from slipstream.run.loading.depth import Depth
from slipstream.run.loading.package_generators import states_of_packages
from slipstream.run.loading.programs import are_fed
from slipstream.run.loading.slot_queue import SlotQueue
from slipstream.run.loading.surroundings import surroundings
from slipstream.run.loading.watch import Watch
from slipstream.run.loading.workers import SPARE_SLOTS, SlotIterator

Say = Callable[[str], None]


@dataclass
class _Crew:
    """Workers that have nothing to do, and what they were started for."""

    iterator: SlotIterator
    watch: "_State"
    settings: tuple[Any, ...]
    surroundings: tuple[Any, ...]
    owner: int


_MOST_IDLE = 2  # crews that wait: for training and for validation
_idle: weakref.WeakKeyDictionary[DataLoader[Any], _Crew] = weakref.WeakKeyDictionary()
_off: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()
_depths: weakref.WeakKeyDictionary[DataLoader[Any], Depth] = weakref.WeakKeyDictionary()


def begin(loader: DataLoader[Any], say: Say) -> Any:
    """A pass over the loader, by workers that live already if there are any. Raises `OSError`
    where there is no shared memory.
    """
    crew = _idle.pop(loader, None)
    if crew is not None:
        if _goes_on(crew, loader):
            say("workers live on from one epoch to the next")
            crew.iterator._reset(loader, first_iter=True)
            return crew.iterator
        _off.add(loader)
        _end(crew)
    given = loader.prefetch_factor or 0
    depth = _depths[loader] = Depth(given, loader.num_workers, say, _depths.get(loader))
    slots = SlotQueue(loader.num_workers, depth.now + SPARE_SLOTS, depth.made)
    # Workers that are forked now could write to what the script feeds a program by, for as long as
    # they live.
    watch = None if are_fed() else _watch(loader)
    slots.is_same = None if watch is None else watch.is_same
    loader.check_worker_number_rationality()
    if watch is None:
        return SlotIterator(loader, slots, depth)
    settings, around = _settings(loader), surroundings()
    owner, reference = os.getpid(), weakref.ref(loader)

    def keep(successor: SlotIterator) -> None:
        if (over := reference()) is not None:
            _keep(over, _Crew(successor, watch, settings, around, owner))

    return SlotIterator(loader, slots, depth, at_end=keep)


def _keep(loader: DataLoader[Any], crew: _Crew) -> None:
    _idle.pop(loader, None)
    for oldest in [*_idle][: 1 - _MOST_IDLE + len(_idle)]:
        _end(_idle.pop(oldest))
    _idle[loader] = crew


def _end(crew: _Crew) -> None:
    if crew.owner != os.getpid():
        _disown(crew)
    with contextlib.suppress(Exception):  # they are of no use to anybody
        crew.iterator._shutdown_workers()


def _disown(crew: _Crew) -> None:
    """Another process goes on to use these workers, or ends them."""
    crew.iterator._shutdown = True
    crew.iterator._worker_pids_set = False


def _disown_all() -> None:
    for crew in [*_idle.values()]:
        _disown(crew)
    _idle.clear()


os.register_at_fork(after_in_child=_disown_all)


def end_idle() -> None:
    """Those that wait."""
    for crew in [*_idle.values()]:
        _end(crew)
    _idle.clear()


def forget_all() -> None:
    """End those that wait, and forget what was learned."""
    end_idle()
    _off.clear()
    _depths.clear()


class _State:
    """What samples are made from, as it is when workers are started: what the dataset holds, and
    the functions and globals that it uses, which a pickle only names.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        roots = loader.dataset, loader.collate_fn
        self._watch = Watch([*roots])
        # Of installed packages, and not all are the dataset's.
        self._held = (*roots, *self._watch.foreign)
        self._contents = "" if self._watch.why_not else contents(*self._held)
        self._generators = states_of_packages()

    def can_be_told(self) -> bool:
        """Whether it shows at all."""
        return bool(self._contents)

    def is_same(self) -> bool:
        """In the loop's process, or in a worker that was forked from it."""
        if not self._watch.is_same_throughout() or states_of_packages() != self._generators:
            return False
        return contents(*self._held) == self._contents


def _watch(loader: DataLoader[Any]) -> _State | None:
    """None where workers are to end with the pass, as torch has it."""
    if loader in _off or loader.persistent_workers or loader.worker_init_fn is not None:
        return None
    try:
        state = _State(loader)
    except Exception:  # of the script's own, from what is looked at
        state = None
    if state is None or not state.can_be_told():
        _off.add(loader)  # to try that before every epoch may take long
        return None
    return state


def _settings(loader: DataLoader[Any]) -> tuple[Any, ...]:
    return (
        loader.dataset, loader.collate_fn, loader.batch_sampler, loader.sampler, loader.timeout,
        loader.num_workers, loader.prefetch_factor, loader.pin_memory, loader.worker_init_fn,
        loader.multiprocessing_context,
    )  # fmt: skip


def _goes_on(crew: _Crew, loader: DataLoader[Any]) -> bool:
    """Whether its workers are what new ones would be, and begin from the seed that is drawn now.
    Otherwise nothing is drawn.
    """
    now = _settings(loader)
    if crew.owner != os.getpid() or any(map(operator.is_not, crew.settings, now)):
        return False
    if crew.surroundings != surroundings():
        return False
    try:
        if not crew.watch.is_same() or not crew.iterator.are_same():
            return False
    except Exception:  # one has died meanwhile
        return False
    # As torch does: it begins the sampler, draws, starts workers, and begins the sampler again.
    iter(loader._index_sampler)
    generator = loader.generator or torch.default_generator
    before = generator.get_state()
    drawn = torch.empty((), dtype=torch.int64).random_(generator=generator)
    try:
        crew.iterator.begin_from(int(drawn.item()))
    except Exception:
        generator.set_state(before)
        return False
    return True
