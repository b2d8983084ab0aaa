"""Hooks on torch's DataLoader, and on ours, in the process of the training loop."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset, _utils, dataloader
from torch.utils.weak import WeakIdKeyDictionary

from slipstream.doctor.capture import COLLATE, FETCH, NEXT, START, Loader, Process
from slipstream.doctor.record import counters, worker
from slipstream.doctor.record.batches import describe_batch
from slipstream.doctor.record.places import place_of_callable, users_place, users_places
from slipstream.doctor.record.reading import Hooks, Reading, time_fetcher
from slipstream.doctor.record.rungs import obey

if TYPE_CHECKING:
    from slipstream.doctor.record.session import Session

Lines = tuple[tuple[object, int], ...]

_KEPT_BATCHES = 20_000  # of all iterations in the loop's own process
_LOOKED_AT = 3  # batches of an iteration whose tensors are described
active: "Session | None" = None


def _be_quiet() -> None:
    """In a child that was just forked: its collector may run before anything else does."""
    if active is not None:
        active.trace.is_on = active.log.is_on = False


os.register_at_fork(after_in_child=_be_quiet)


def forget_in_child() -> None:
    """In a forked worker: the recording is the parent's."""
    global active
    session, active = active, None
    if session is not None:
        session.forget()


class LoaderHooks:
    """Knows the loaders that the script makes and iterates over."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._trace = session.trace
        self.loaders: list[Loader] = []
        self.readings: list[Reading] = []
        self.worker_pids: dict[int, int] = {}
        # By identity: the user's own classes may define what is equal.
        self._made_at: MutableMapping[Any, str | None] = WeakIdKeyDictionary()
        self._made_by: MutableMapping[Any, Lines] = WeakIdKeyDictionary()
        self._earlier: MutableMapping[Any, list[Loader]] = WeakIdKeyDictionary()
        self._used: dict[Lines, list[Loader]] = {}
        self._ids: MutableMapping[Any, int] = WeakIdKeyDictionary()
        self._iterations: MutableMapping[Any, list[int]] = WeakIdKeyDictionary()
        self._dataset_ids: dict[int, tuple[int, Any]] = {}
        self._count = 0
        self._starting: Loader | None = None
        self.own_ns = 0  # that the loop waited for the hooks of its batches
        self._inside = False
        self._climbing: int | None = None  # the loader of which a further epoch begins
        self._samples: defaultdict[int, dict[str, Any]] = defaultdict(dict)  # for its ladder
        self._last: dict[int, Any] = {}
        self._loader_of: MutableMapping[Any, Any] = WeakIdKeyDictionary()
        self._again: MutableMapping[Any, Any] = WeakIdKeyDictionary()
        self.hooks = Hooks(session.log)

    def install(self) -> None:
        """Replace what is hooked; `Session` puts it back."""
        patches = self._session.patches
        patches.replace(DataLoader, "__init__", self._wrap_init)
        patches.replace(DataLoader, "__iter__", self._wrap_iter)
        patches.replace(dataloader._BaseDataLoaderIter, "__next__", self._wrap_next)
        patches.replace(dataloader._BaseDataLoaderIter, "_next_index", self._wrap_next_index)
        patches.replace(dataloader._DatasetKind, "create_fetcher", self._wrap_create)
        patches.replace(
            _utils.worker, "_worker_loop", lambda _: worker.worker_loop, disguised=False
        )
        from slipstream.loader.iterator import LoaderIterator
        from slipstream.loader.loader import Loader as SlipLoader

        patches.replace(SlipLoader, "__iter__", self._wrap_iter)
        patches.replace(LoaderIterator, "__next__", self._wrap_next)

    def _wrap_init(self, original: Any) -> Any:
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            if loader not in self._made_at:
                self._made_at[loader] = users_place()
                self._made_by[loader] = made_by = users_places()
                self._earlier[loader] = list(self._used.get(made_by, ()))

        return init

    def _wrap_iter(self, original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            if self._inside or not self._trace.is_here:
                return original(loader)
            try:
                facts = self._facts_of(loader)
            except Exception:  # of the user's own classes, asked what nobody has asked them before
                return original(loader)
            self._count += 1
            self._inside, self._starting = True, facts
            try:
                with self._trace.span(START, [facts.id, self._count]):
                    iterator = original(loader)
            finally:
                self._inside, self._starting = False, None
            self._iterations[iterator] = [facts.id, self._count, 0]
            if self._session.examines:
                self._loader_of[iterator] = loader
            for process in getattr(iterator, "_workers", None) or ():
                self.worker_pids[process.pid] = facts.id
            return iterator

        return iterate

    def _wrap_next(self, original: Any) -> Any:
        def next_batch(iterator: Any) -> Any:
            if self._inside or not self._trace.is_here:
                return original(iterator)
            known = self._iterations.get(iterator)
            if known is None:
                return original(iterator)
            entered = time.perf_counter_ns()
            self._session.before_batch()
            self._inside = True
            try:
                delay = self._run_delay()
                with self._trace.span(NEXT, [known[0], known[1], known[2], delay]) as span:
                    try:
                        batch = self._next(original, iterator, known[0])
                    except StopIteration:
                        span.detail[2] = -1
                        raise
            finally:
                self._inside = False
            if known[2] < _LOOKED_AT:
                with suppress(Exception):  # a batch of the user's own kind
                    describe_batch(batch, self.loaders[known[0]])
            if not known[2]:
                for process in getattr(iterator, "_workers", None) or ():
                    self.worker_pids[process.pid] = known[0]
            span.detail.append(self._run_delay())
            known[2] += 1
            if self._session.examines:
                self._last[known[0]] = batch
            self._session.after_batch(known[0])
            self.own_ns += time.perf_counter_ns() - entered - (span.end - span.start)
            return batch

        return next_batch

    def _next(self, original: Any, iterator: Any, loader: int) -> Any:
        if self._is_cached(loader):
            return self._last[loader]
        if self._session.ladder is None or loader != self._session.ladder.loop:
            return original(iterator)
        # The ladder needs more batches than an epoch may have.
        try:
            return original(self._again.get(iterator, iterator))
        except StopIteration:
            self._climbing = loader
            try:
                self._again[iterator] = iter(self._loader_of[iterator])
            finally:
                self._climbing = None
            return original(self._again[iterator])

    def _run_delay(self) -> int | None:
        return None if self._session.is_light else counters.run_delay()

    def _is_cached(self, loader: int) -> bool:
        """Whether the loop is to get the batch again that it had before."""
        ladder = self._session.ladder
        return ladder is not None and ladder.gives_cached and loader == ladder.loop

    def _wrap_next_index(self, original: Any) -> Any:
        """The sampler's own time: it runs in the loop's thread, whatever the workers do."""

        def next_index(iterator: Any) -> Any:
            start = time.perf_counter_ns()
            try:
                return original(iterator)
            finally:
                known = self._iterations.get(iterator)
                loader = self._starting if known is None else self.loaders[known[0]]
                if loader is not None and self._trace.is_here:
                    _note_index(loader, time.perf_counter_ns() - start)

        return next_index

    def _wrap_create(self, original: Any) -> Any:
        def create(*args: Any) -> Any:
            fetcher = original(*args)
            if self._climbing is not None:
                return obey(fetcher, self._session.rungs, self._samples[self._climbing])
            if self._starting is None or self._session.is_light or not self._trace.is_here:
                return fetcher
            process = Process(os.getpid(), self._starting.id, None, time.perf_counter_ns())
            process.ready = process.began
            self.hooks.look_inside(args[1])
            reading = Reading(process, self._session.log, opened=self._session.own)
            self._let_go_of_old_batches()
            self.readings.append(reading)
            kept = self._samples[self._starting.id] if self._session.examines else {}
            timed = obey(time_fetcher(fetcher, reading), self._session.rungs, kept)
            timed.fetch = self._as_span(FETCH, timed.fetch)
            timed.collate_fn = self._as_span(COLLATE, timed.collate_fn)
            return timed

        return create

    def _let_go_of_old_batches(self) -> None:
        """There is a reading for every iteration: their batches must not grow with the epochs."""
        kept = 0
        for reading in reversed(self.readings):
            batches = reading.process.batches
            kept += len(batches)
            if kept > _KEPT_BATCHES:
                if not batches:
                    break  # so are all before
                batches.clear()

    def _as_span(self, kind: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            if not self._trace.is_here:
                return function(given)
            with self._trace.span(kind):
                return function(given)

        return call

    def _facts_of(self, loader: Any) -> Loader:
        if loader in self._ids:
            return self.loaders[self._ids[loader]]
        again = self._made_again(loader)
        if again is not None:
            again.facts["made"] = again.facts.get("made", 1) + 1
            self._ids[loader] = again.id
            self.hooks.look_at(loader.dataset)
            return again
        facts = _describe(loader, len(self.loaders), self._dataset_id(loader.dataset))
        facts.made_at = self._made_at.get(loader)
        facts.used_at = users_place(2)
        if self._session.is_light:
            self._ids[loader] = facts.id
            self.loaders.append(facts)
            return facts
        facts.transforms = self.hooks.look_at(loader.dataset)
        self._ids[loader] = facts.id
        self._used.setdefault(self._made_by.get(loader, ()), []).append(facts)
        self.loaders.append(facts)
        return facts

    def _made_again(self, loader: Any) -> Loader | None:
        """The loader that this one stands for: made by the same lines over the same data, after
        that one was used.
        """
        known_dataset = self._dataset_ids.get(id(loader.dataset))
        kind = type(loader.dataset).__qualname__
        for known in self._earlier.get(loader, ()):
            if known_dataset is not None and known_dataset[0] == known.dataset_id:
                return known
            if known.dataset == kind and _length_of(loader) == known.length:
                return known
        return None

    def _dataset_id(self, dataset: Any) -> int:
        # Kept alive: another object could get the same address.
        known = self._dataset_ids.setdefault(id(dataset), (len(self._dataset_ids), dataset))
        return known[0]


def _describe(loader: Any, number: int, dataset_id: int) -> Loader:
    is_iterable = isinstance(loader.dataset, IterableDataset)
    own = type(loader).__module__.startswith("slipstream.")
    context = loader.multiprocessing_context
    method = context.get_start_method() if context is not None else None
    if method is None and loader.num_workers:
        method = torch.multiprocessing.get_start_method()
    workers = loader.num_workers if isinstance(loader.num_workers, int) else 0
    return Loader(
        id=number, made_at=None, used_at=None,
        dataset=type(loader.dataset).__qualname__, dataset_id=dataset_id,
        kind="slipstream" if own else "iterable" if is_iterable else "map",
        length=_length_of(loader), batch_size=loader.batch_size, workers=workers,
        prefetch=loader.prefetch_factor if isinstance(loader.prefetch_factor, int) else None,
        pin_memory=bool(loader.pin_memory), persistent=bool(loader.persistent_workers),
        start_method=method, in_order=bool(getattr(loader, "in_order", True)),
        shuffled="Random" in type(loader.sampler).__name__,
        drop_last=bool(loader.drop_last),
        collate=getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__),
        timeout=float(loader.timeout),
        facts={
            "read_at": _read_at(loader.dataset),
            "collate_at": place_of_callable(loader.collate_fn),
            "sampler": type(loader.sampler).__name__,
            "sampler_at": _place_of_class(getattr(loader, "batch_sampler", None))
            or _place_of_class(loader.sampler),
            "samples": _samples_of(loader.dataset),
        },
    )  # fmt: skip


def _length_of(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # of a dataset or sampler without a length, or the user's own
        return None


def _samples_of(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:
        return None


def _read_at(dataset: Any) -> str | None:
    """Where the user's code reads a sample."""
    while dataset is not None:
        for name in ("__getitem__", "__getitems__", "__iter__"):
            method = getattr(type(dataset), name, None)
            where = None if method is None else place_of_callable(method)
            if where is not None:
                return where
        dataset = getattr(dataset, "dataset", None)
    return None


def _place_of_class(thing: Any) -> str | None:
    method = getattr(type(thing), "__iter__", None)
    return None if method is None else place_of_callable(method)


def _note_index(loader: Loader, took: int) -> None:
    """[calls, time of all, the longest ones] of the sampler."""
    counts = loader.facts.setdefault("index", [0, 0, []])
    counts[0] += 1
    counts[1] += took
    counts[2] = sorted([*counts[2], took], reverse=True)[:8]
