"""More workers than the script has asked for, until a sample turns out to be its worker's own.

Where samples draw nothing and change nothing, it does not show which worker makes a batch. The
first batch that is another one elsewhere is never delivered: workers as the script has asked for
take over from there. Their random numbers are where they would be, as nothing was drawn before.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from slipstream.run.fix import Say
from slipstream.run.loading.checked import Flag
from slipstream.run.loading.depth import free_batches
from slipstream.run.loading.recorded import Recorded
from slipstream.run.loading.workers import why_not_slots


def why_not(loader: DataLoader[Any]) -> str:
    """Why this loader has to have the workers that it was given, or an empty string."""
    if why := why_not_slots(loader):
        return why
    if loader.worker_init_fn is not None:
        return "workers are told their numbers"
    if not getattr(loader, "in_order", True):
        return "batches come in the order in which they are ready"
    if free_batches(loader._index_sampler, loader.dataset) != math.inf:
        return "its sampler may draw with the loop"
    return ""


class Guard:
    """Of one pass with added workers: what it takes to go back."""

    def __init__(self, loader: DataLoader[Any], flag: Flag, before: torch.Tensor, say: Say) -> None:
        """`before` is the state of the loader's generator before the pass."""
        # The loader may end before its iterator, and may be the one that keeps that.
        self._loader: Any = object.__new__(DataLoader)
        vars(self._loader).update(vars(loader), _iterator=None)
        self.flag, self._before, self.say = flag, before, say
        self.replacement: Any = None

    def hand_over(self, sampled: "Iterator[Any]", delivered: int) -> Any:
        """An iterator with the script's own workers, from the first batch that is not delivered."""
        loader = self._loader
        generator = loader.generator or torch.default_generator
        now = generator.get_state()
        generator.set_state(self._before)
        try:
            self.replacement = _From(_Rest(loader, sampled), delivered)
        finally:
            generator.set_state(now)
        self.replacement._index_sampler = loader._index_sampler
        return self.replacement


class _Rest:
    """The loader as torch's iterator sees it while it is made: what is left of a pass."""

    def __init__(self, loader: DataLoader[Any], left: Iterator[Any]) -> None:
        self._loader = loader
        self._index_sampler = left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _From(_MultiProcessingDataLoaderIter):
    """Begins in the middle: with the worker whose turn it is."""

    def __init__(self, loader: Any, first: int) -> None:
        self._skipped = first % loader.num_workers
        super().__init__(loader)
        self._profile_name = (
            f"enumerate(DataLoader)#{_MultiProcessingDataLoaderIter.__name__}.__next__"
        )

    def _try_put_index(self) -> None:
        for _ in range(self._skipped):
            next(self._worker_queue_idx_cycle)
        self._skipped = 0
        super()._try_put_index()


class _Guarded(_MultiProcessingDataLoaderIter):
    """An iterator with added workers, of whatever class it was."""

    _guard: Guard

    def _next_data(self) -> Any:
        guard = self._guard
        if guard.replacement is not None:
            return guard.replacement._next_data()
        try:
            data = super()._next_data()  # type: ignore[no-untyped-call]
        except StopIteration:
            raise
        except Exception:
            # Of a sample, most likely: the script's own worker says so in its own words.
            return self._go_back("a sample raises an error")
        if guard.flag.is_up:
            del data
            return self._go_back("samples draw random numbers, or change the dataset")
        self._sampler_iter.delivered()
        return data

    def _go_back(self, why: str) -> Any:
        guard = self._guard
        guard.flag.raise_()
        guard.say(f"left alone: {why}", left=True)
        sampled = self._sampler_iter
        self._shutdown_workers()
        return guard.hand_over(sampled.rest(), sampled.count)._next_data()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if self._guard.replacement is not None:
            self._guard.replacement._reset(loader, first_iter)
        else:
            super()._reset(loader, first_iter)

    def _successor(self) -> Any:
        successor = super()._successor()  # type: ignore[misc]
        vars(successor).pop("_guard")  # which knows the loader
        return successor


def guard(iterator: Any, how: Guard) -> None:
    """From now on."""
    iterator._guard = how
    iterator.__class__ = type(type(iterator).__name__, (_Guarded, type(iterator)), {})


@contextmanager
def as_wanted(loader: Any, workers: int, sampler: Recorded) -> Iterator[None]:
    """Meanwhile the loader has so many workers, and says what was sampled."""
    given, name = loader.num_workers, "batch_sampler" if loader._auto_collation else "sampler"
    loader.num_workers = workers
    # Workers that wait for storage may be more than cores; torch would say that to a user.
    loader.check_worker_number_rationality = lambda: None
    object.__setattr__(loader, name, sampler)
    try:
        yield
    finally:
        object.__setattr__(loader, name, sampler.original)
        loader.num_workers = given
        del loader.check_worker_number_rationality
