"""Worker processes as the loader sees them: starts them, hands out batches to make, collects them.

Everything happens in the thread that asks for the next batch. It waits on the workers' sockets and
on the workers' deaths, so there is nothing to poll and nobody to wait for without end.
"""

import contextlib
import multiprocessing
import os
import pickle
import select
import signal
import socket
import time
import weakref
from collections import deque
from typing import Any

import numpy as np

from slipstream.errors import SlipstreamError, UsageError
from slipstream.loader.bad_samples import BadSample
from slipstream.loader.made import Made
from slipstream.loader.memory import (
    Bytes,
    SharedSlot,
    SlotShelf,
    lend,
    lock_pages,
    map_shared,
)
from slipstream.loader.parcel import unwrap
from slipstream.loader.plan import Task
from slipstream.loader.wire import MOST_DESCRIPTORS, Closed, Wire
from slipstream.loader.worker import ADOPT, DROP, ERROR, SLOT, TASK, Job, run_worker

_GRACE_S = 5.0
_NOTHING = np.empty(0, dtype=np.uint8)


class WorkerDied(SlipstreamError, RuntimeError):
    """A worker process ended in the middle of its work."""


class Timeout(SlipstreamError, RuntimeError):
    """A batch took longer than the loader's `timeout`."""


class _Worker:
    """One process, and this end of its socket pair."""

    def __init__(
        self,
        job: Job,
        number: int,
        context: Any,
        others: list["_Worker"],
        shelf: SlotShelf,
    ) -> None:
        ours, theirs = socket.socketpair()
        self.wire = Wire(ours)
        self.freed: deque[int] = deque()
        self.slots: dict[int, SharedSlot] = {}
        self.lent: set[int] = set()
        self.is_closed = False
        self.busy = 0
        self._shelf = shelf
        inherited = []
        if context.get_start_method() == "fork":
            inherited = [ours, *(worker.wire.socket for worker in others)]
        self.process = context.Process(
            target=run_worker, args=(job, number, theirs, os.getpid(), inherited), daemon=True
        )
        try:
            self.process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.death = self._watch_death()

    def _watch_death(self) -> int:
        """A descriptor that becomes readable when the process has ended."""
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                return os.pidfd_open(self.process.pid)
        return os.dup(self.process.sentinel)

    def adopt(self, slots: list[SharedSlot], expected: int) -> None:
        """Hand slots of earlier workers over."""
        self.slots.update(enumerate(slots))
        sizes = [slot.memory.nbytes for slot in slots]
        message = pickle.dumps((ADOPT, sizes, expected))
        self.wire.send(message, tuple(slot.descriptor for slot in slots))

    def lend_slot(self, number: int) -> Bytes:
        """A slot's memory; when its last tensor is gone the worker may use it again."""
        self.lent.add(number)
        return lend(self.slots[number].memory, self._give_back, number)

    def _give_back(self, number: int) -> None:
        self.lent.discard(number)
        if self.is_closed:
            self._shelve(number)
        else:
            self.freed.append(number)

    def _shelve(self, number: int) -> None:
        slot = self.slots.pop(number, None)
        if slot is not None:
            self._shelf.put(slot)

    def drop_slot(self, number: int) -> None:
        """The worker has replaced this slot by a larger one."""
        os.close(self.slots.pop(number).descriptor)

    def shelve_slots(self) -> None:
        """After the worker's end: keep its slots, those still in use when they come back."""
        self.is_closed = True
        for number in set(self.slots) - self.lent:
            self._shelve(number)

    def close(self) -> None:
        self.wire.close()
        if self.death >= 0:
            os.close(self.death)
            self.death = -1


class Pool:
    """Up to `limit` worker processes, started when there is work for them.

    Must be closed; `close` may be called more than once.
    """

    def __init__(self, job: Job, context: Any, shelf: SlotShelf, *, pin: bool = False) -> None:
        self._job = job
        self._context = context or multiprocessing.get_context()
        self._pin = pin
        self._shelf = shelf
        self._owner = os.getpid()
        self._numbers = 0
        self.workers: list[_Worker] = []
        self.processes: list[Any] = []
        self._close = weakref.finalize(self, _shut_down, self.workers, self._owner)

    def next_number(self) -> int:
        """A number for the next task, never used before: results of an iteration that was given up
        are told from those of the next.
        """
        self._numbers += 1
        return self._numbers

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return self._close.alive

    def close(self) -> None:
        """End all workers; those that do not listen within some seconds are killed."""
        self._close()

    def worker(self, number: int) -> _Worker:
        """Worker `number`, started with all before it if need be."""
        if os.getpid() != self._owner:
            raise UsageError(
                "This iterator was made in another process and its workers belong to that one."
                " Call iter(loader) in the process that uses it."
            )
        while len(self.workers) <= number:
            worker = _Worker(self._job, len(self.workers), self._context, self.workers, self._shelf)
            self.workers.append(worker)
            self.processes.append(worker.process)
            kept = self._shelf.take(min(self._job.slots, MOST_DESCRIPTORS))
            if kept:
                worker.adopt(kept, kept[-1].memory.nbytes)
        return self.workers[number]

    def send(self, number: int, task_number: int, epoch: int, task: Task) -> None:
        """Have a worker make a batch."""
        worker = self.worker(number)
        freed = [worker.freed.popleft() for _ in range(len(worker.freed))]
        message = pickle.dumps((TASK, task_number, epoch, task.key, task.indices, freed), 5)
        try:
            worker.wire.send(message)
        except Closed:
            self.raise_death(worker, task)
        worker.busy += 1

    def receive(self, wait_s: float | None) -> list[tuple[int, Any]]:
        """What has come, by task: a batch or a failure. Waits up to `wait_s` for something. A dead
        worker comes under the number -1.
        """
        poll = select.poll()
        owners: dict[int, _Worker] = {}
        for worker in self.workers:
            for descriptor in (worker.wire.fileno(), worker.death):
                poll.register(descriptor, select.POLLIN)
                owners[descriptor] = worker
        ready = poll.poll(None if wait_s is None else max(0.0, wait_s) * 1000)
        came: list[tuple[int, Any]] = []
        for worker in {id(w): w for w in (owners[descriptor] for descriptor, _ in ready)}.values():
            try:
                while (message := worker.wire.try_receive()) is not None:
                    came += self._open(worker, message)
                if _is_readable(worker.death):
                    raise Closed
            except Closed:
                came.append((-1, worker))
        return came

    def _open(self, worker: _Worker, message: bytes) -> list[tuple[int, Any]]:
        kind, *parts = pickle.loads(message)
        if kind == SLOT:
            number, nbytes = parts
            slot = SharedSlot(_NOTHING, worker.wire.take_descriptor())
            worker.slots[number] = slot
            slot.memory = map_shared(slot.descriptor, nbytes)
            if self._pin:
                slot.memory = lock_pages(slot.memory)
            return []
        if kind == DROP:
            for number in parts[0]:
                worker.drop_slot(number)
            return []
        worker.busy -= 1
        if kind == ERROR:
            return [(parts[0], parts[1])]
        return [(parts[0], self._assemble(worker, *parts[1:]))]

    def _assemble(
        self, worker: _Worker, slot: int | None, places: Any, skeleton: bytes | None,
        times: tuple[float, float, float], samples: int, bad: list[BadSample],
    ) -> Made:  # fmt: skip
        memory, nbytes = None, 0
        if slot is not None:
            memory = worker.lend_slot(slot)
            nbytes = memory.nbytes
        if skeleton is None:
            batch = None
        elif places is None:
            batch = pickle.loads(skeleton)
        else:
            batch = unwrap(skeleton, places, memory)
        return Made(batch, samples, nbytes, *times, bad)

    def raise_death(self, worker: _Worker, task: Task | None) -> None:
        """Tell of a worker's end as torch does, and more."""
        worker.process.join(_GRACE_S)
        code, pid = worker.process.exitcode, worker.process.pid
        if code is not None and code < 0:
            try:
                name = f"{signal.Signals(-code).name}, {signal.strsignal(-code)}"
            except ValueError:
                name = str(-code)
            what = (
                f"DataLoader worker (pid(s) {pid}) exited unexpectedly: killed by signal: {name}."
            )
            if -code == signal.SIGKILL:
                what += (
                    " Often that is the kernel, short of memory: fewer workers, smaller batches or"
                    " a lower prefetch_factor take less."
                )
        else:
            what = f"DataLoader worker (pid(s) {pid}) exited unexpectedly with exit code {code}."
        if task is not None:
            what += f" It was making the batch of samples {shorten(task.indices)}."
        raise WorkerDied(what)


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def shorten(indices: Any) -> str:
    """The first few of many."""
    if isinstance(indices, list) and len(indices) > 8:
        return f"{', '.join(map(str, indices[:8]))}, … ({len(indices)} in all)"
    return str(indices)


def _shut_down(workers: list[_Worker], owner: int) -> None:
    if os.getpid() != owner:
        # A forked child: the processes are the parent's, only the descriptors are ours, too.
        for worker in workers:
            worker.close()
        return
    for worker in workers:
        worker.wire.close()
    deadline = time.monotonic() + _GRACE_S
    for end_it in (None, "terminate", "kill"):
        for worker in workers:
            if end_it is not None and worker.process.is_alive():
                getattr(worker.process, end_it)()
            worker.process.join(max(0.05, deadline - time.monotonic()))
        deadline = time.monotonic() + 1.0
    for worker in workers:
        worker.close()
        if worker.process.exitcode is not None:
            worker.shelve_slots()
    workers.clear()
