"""The process that makes batches ahead. Forked from the loop's own, it has the dataset as it is
there, and leaves no trace but batches.
"""

import gc
import os
import pickle
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from slipstream.loader.parcel import place, wrap
from slipstream.loader.wire import Closed, Wire
from slipstream.loader.worker import Slots, watch_parent
from slipstream.run.loading.confine import Confinement, file_places
from slipstream.run.loading.digest import digest, trouble
from slipstream.run.loading.held import CHANGED, Held
from slipstream.run.loading.outlets import has_device
from slipstream.run.loading.read_only import forbid_writing
from slipstream.run.loading.states import (
    States,
    are_at,
    changed,
    others,
    read_states,
    write_states,
)
from slipstream.run.loading.surroundings import surroundings
from slipstream.run.loading.threads import ThreadDependence
from slipstream.run.pictures.batches import LateCollate
from slipstream.run.pictures.late_tensor import postponed
from slipstream.run.pictures.source import without_pixels

TASK, VERIFY, RESTART, SCOUT = range(4)  # to the child
# From it; the first two are those of `Slots`.
BATCH, FAILED, VERIFIED, SCOUTED = range(10, 14)
_MOST_SLOTS = 8  # batches that are kept beyond lie in the memory of the loop's process
_NICE = 5  # the loop goes first


@dataclass(frozen=True, eq=False)
class Job:
    """What makes a batch of indices, as torch's fetcher has it."""

    dataset: Any
    collate_fn: Callable[..., Any]
    auto_collation: bool
    threads: int  # of torch in the loop's process
    held: Held | None = None  # as the loop's process looks at it
    # Random generators that samples were seen to change. A sample that seeds one may leave it as it
    # was, and not as the loop has it by then.
    touched: frozenset[int] = frozenset()

    def is_that_of(self, other: "Job") -> bool:
        """Whether the very same things make the same batches; datasets may define == at will."""
        return (
            self.dataset is other.dataset
            and self.collate_fn is other.collate_fn
            and self.auto_collation == other.auto_collation
            and self.threads == other.threads
        )


def run_child(
    job: Job, end: socket.socket, parent: int, places: dict[int, int], *, seeds_device: bool
) -> None:
    """Never returns."""
    code = 1
    try:
        gc.freeze()
        torch.set_num_threads(1)
        os.nice(_NICE)
        confinement = Confinement(frozenset({end.fileno()}), places, seeds_device=seeds_device)
        watch_parent(parent)
        # What a library of C writes would be there when the loop makes such a sample itself.
        with suppress(OSError):  # an older kernel: what was written shows behind it
            forbid_writing()
        _Maker(job, Wire(end), confinement).serve()
    except (Closed, KeyboardInterrupt):
        code = 0
    finally:
        os._exit(code)


class _Maker:
    def __init__(self, job: Job, wire: Wire, confinement: Confinement) -> None:
        self._job = job
        self._wire = wire
        self._confinement = confinement
        self._slots = Slots(wire, _MOST_SLOTS)
        self._expected = 0
        self._direct = job.auto_collation and job.collate_fn is torch.utils.data.default_collate
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._threads = 1  # for pictures
        self._is_scout = False
        self._surroundings = surroundings()

    def serve(self) -> None:
        while True:
            kind, number, *parts = self._next_message()
            if kind == VERIFY:
                self._send((VERIFIED, number, *self._verify(*parts)))
                continue
            try:
                if kind == SCOUT:
                    self._scout(number, *parts)
                    continue
                index, states, freed, retired = parts
                self._slots.free.extend(freed)
                self._slots.forget(retired)
                self._make(number, index, states)
            except Closed:
                raise
            except Exception as error:
                self._confinement.take_trace()
                self._send((FAILED, number, f"{type(error).__name__}: {error}"))

    def _next_message(self) -> tuple[Any, ...]:
        """Tasks from before a restart are void; their freed slots are not."""
        if not self._waiting:
            self._waiting.append(pickle.loads(self._wire.receive()))
        while (message := self._wire.try_receive()) is not None:
            self._waiting.append(pickle.loads(message))
        restarts = [k for k, message in enumerate(self._waiting) if message[0] == RESTART]
        if restarts:
            self._threads = self._waiting[restarts[-1]][1]
        for _ in range(restarts[-1] + 1 if restarts else 0):
            kind, *parts = self._waiting.popleft()
            if kind == TASK:
                self._slots.free.extend(parts[3])
                self._slots.forget(parts[4])
        return self._waiting.popleft() if self._waiting else self._next_message()

    def _make(self, number: int, index: Any, states: States | None) -> None:
        if states is not None:
            write_states(states)
        before = read_states()
        began = time.perf_counter()
        self._confinement.take_questions()
        slot = self._slots.take(self._expected) if self._expected else None
        try:
            batch, doubt = self._watched(index, slot and slot[1])
            parcel = wrap(batch)
            after = read_states()
            trace = self._confinement.take_trace() or doubt
            nbytes = parcel.nbytes
            if not trace and nbytes and (slot is None or slot[1].nbytes < nbytes):
                self._free(slot)
                slot = self._slots.take(nbytes)
            memory = slot and slot[1]
            if memory is None and nbytes and not trace:
                memory = np.empty(nbytes, np.uint8)
            places = [] if trace else place(parcel.leaves, memory)
        except BaseException:
            self._free(slot)
            raise
        if trace:
            self._free(slot)
            self._send((FAILED, number, trace))
            return
        self._expected = max(nbytes, self._expected * 7 // 8)
        where = slot[0] if slot is not None else memory
        ends = changed(before, after, always=self._job.touched)
        entries = self._job.held.entries(index) if self._job.held is not None else 0
        asked = self._confinement.take_questions()
        seconds = time.perf_counter() - began
        self._send((BATCH, number, where, places, parcel.skeleton, ends, entries, asked, seconds))

    def _scout(self, number: int, index: Any, states: States | None) -> None:
        """What samples draw, without pixels. A batch of torch's own collate draws no more."""
        if not self._is_scout:
            forbid_writing()  # fails where there is none: black pixels may be stored nowhere
            self._is_scout = True
        if states is not None:
            write_states(states)
        before = read_states()
        began = time.perf_counter()
        with without_pixels(), postponed():
            if self._direct:
                self._samples(index)
            else:
                self._batch(index)
        seconds = time.perf_counter() - began
        self._confinement.take_questions()
        if trace := self._confinement.take_trace():
            self._send((FAILED, number, trace))
        elif change := self._changes():
            self._send((FAILED, number, change))
        else:
            self._send((SCOUTED, number, changed(before, read_states()), seconds))

    def _free(self, slot: Any) -> None:
        if slot is not None and slot[0] not in self._slots.free:
            self._slots.free.append(slot[0])

    def _batch(self, index: Any, memory: Any = None) -> Any:
        job = self._job
        if not job.auto_collation:
            return job.collate_fn(job.dataset[index])
        if not self._direct:
            return job.collate_fn(self._samples(index))
        with postponed():
            return LateCollate(memory, self._threads).collate(self._samples(index))

    def _watched(self, index: Any, memory: Any = None) -> tuple[Any, str]:
        """A batch, and why it may not be what the loop's process would make."""
        mode = ThreadDependence() if self._job.threads > 1 else None
        with mode or nullcontext():
            batch = self._batch(index, memory)
        if mode is not None and mode.found:
            return batch, f"{mode.found} may round differently with other threads"
        return batch, self._changes()

    def _changes(self) -> str:
        """What samples have changed here that is the loop's to have."""
        held = self._job.held
        if held is not None and not held.is_same():
            return CHANGED
        if surroundings() != self._surroundings:
            return "samples change settings of the process"
        return ""

    def _contents(self) -> str:
        found = self._job.held.contents() if self._job.held is not None else ""
        # Libraries may have said something while they were asked.
        self._confinement.take_trace()
        self._confinement.take_questions()
        return found

    def _samples(self, index: Any) -> Any:
        dataset = self._job.dataset
        many = getattr(dataset, "__getitems__", None)
        return many(index) if many else [dataset[one] for one in index]

    def _verify(self, index: Any, states: States) -> tuple[str, str, States]:
        """Make a batch twice from the same states, and again with other states of the generators
        that it left as they were. What is wrong with that, if anything; what the batch is; and
        where the generators are afterwards.
        """
        try:
            held = self._contents()
            write_states(states)
            first, doubt = self._watched(index)
            ends = read_states()
            if trace := self._confinement.take_trace():
                return f"making a batch {trace}", "", {}
            if not doubt and held and self._contents() != held:
                doubt = CHANGED
            if doubt:
                return doubt, "", {}
            write_states(states)
            second = self._batch(index)
            made = digest(first)
            if read_states() != ends or digest(second) != made:
                return "a batch that is made again is another one", "", {}
            if why := trouble(first, second):
                return why, "", {}
            still = [number for number in states if ends[number] == states[number]]
            if still and (why := self._needs(still, index, states, made)):
                return why, "", {}
            write_states(ends)
        except Closed:
            raise
        except Exception as error:
            if trace := self._confinement.take_trace():
                return f"making a batch {trace}", "", {}
            return f"in another process: {type(error).__name__}: {error}", "", {}
        return "", made, changed(states, ends)

    def _needs(self, still: list[int], index: Any, states: States, made: str) -> str:
        """What a batch has to do with generators that it left as they were."""
        elsewhere = others(still)
        write_states({**states, **elsewhere})
        if digest(self._batch(index)) != made:
            return "samples look at random generators that they do not draw from"
        unknown = set(still) - self._job.touched
        if not are_at({number: elsewhere[number] for number in unknown}):
            return "samples seed random generators as they were seeded before"
        return ""

    def _send(self, message: tuple[Any, ...]) -> None:
        self._wire.send(pickle.dumps(message, 5))


def fork_child(job: Job) -> tuple[int, socket.socket]:
    """Start one: its process id, and our end of its socket pair."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    places, seeds_device = file_places(), has_device()
    pid = os.fork()
    if pid == 0:
        ours.close()
        run_child(job, theirs, parent, places, seeds_device=seeds_device)
    theirs.close()
    return pid, ours
