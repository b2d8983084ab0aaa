"""Worker processes as the loader sees them: starts them, hands out batches to make, collects them.

Everything happens in the thread that asks for the next batch. It waits on the workers' sockets and
on the workers' deaths, so there is nothing to poll and nobody to wait for without end.
"""

import contextlib
import math
import multiprocessing
import os
import pickle
import select
import signal
import socket
import time
import warnings
import weakref
from typing import Any, Protocol

import numpy as np
from torch._utils import ExceptionWrapper

from slipstream.errors import SlipstreamError, UsageError
from slipstream.loader.bad_samples import BadSample
from slipstream.loader.made import Made
from slipstream.loader.memory import (
    Bytes,
    Forks,
    Leases,
    SharedSlot,
    SlotShelf,
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


class Receiver(Protocol):
    """An iteration that has handed out tasks."""

    is_ended: bool

    def accept(self, number: int, made: Any) -> None:
        """Task `number` is done: a batch, or a failure."""


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
        self.slots: dict[int, SharedSlot] = {}
        self.leases: Leases[tuple[int, int]] = Leases()
        self.busy = 0
        self._shelf = shelf
        inherited = []
        if context.get_start_method() == "fork":
            inherited = [ours, *(worker.wire.socket for worker in others)]
        self.process = context.Process(
            target=run_worker, args=(job, number, theirs, os.getpid(), inherited), daemon=True
        )
        try:
            _start(self.process)
            self.death = self.wire.peer_death = self._watch_death()
        except BaseException:
            self.wire.hang_up()
            if self.process.pid is not None:
                self.process.join(_GRACE_S)
            raise
        finally:
            theirs.close()

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
        return self.leases.lend(self.slots[number].memory, (number, Forks.count))

    def take_back(self) -> tuple[list[int], list[int]]:
        """Slots that the worker may use again, and those that it must not use any more."""
        freed: list[int] = []
        retired: list[int] = []
        for number, forks in self.leases.take_back():
            if forks == Forks.count:
                freed.append(number)
            else:
                # A forked child has the same batch, and may look at it for as long as it lives.
                self.drop_slot(number)
                retired.append(number)
        return freed, retired

    def drop_slot(self, number: int) -> None:
        """Nobody writes to this slot any more."""
        slot = self.slots.pop(number, None)
        if slot is not None:
            os.close(slot.descriptor)

    def shelve_slots(self) -> None:
        """After the worker's end: keep its slots, those still in use when they come back."""
        self.take_back()
        self._shelf.put(self.leases, self.slots)

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
        self._end = ""
        self._receivers: weakref.WeakValueDictionary[int, Receiver] = weakref.WeakValueDictionary()
        self.workers: list[_Worker] = []
        self.processes: list[Any] = []
        self._users: weakref.WeakSet[Receiver] = weakref.WeakSet()
        self._is_interrupted = False
        self._wake, self._waker = os.pipe()
        wakers = (self._wake, self._waker)
        self._close = weakref.finalize(self, _shut_down, self.workers, wakers, self._owner)

    @property
    def is_used(self) -> bool:
        """Whether an iteration that lives has not come to its end."""
        return any(not user.is_ended for user in self._users)

    def add_user(self, user: Receiver) -> None:
        """An iteration begins."""
        self._users.add(user)

    def resume(self) -> None:
        """After an interrupted iteration has ended: others may wait for batches again."""
        if self._is_interrupted and self._close.alive:
            self._is_interrupted = False
            os.read(self._wake, 1 << 10)

    def interrupt(self) -> None:
        """Make `receive` return, in whatever thread it waits."""
        self._is_interrupted = True
        if self._close.alive:
            os.write(self._waker, b"!")

    @property
    def is_interrupted(self) -> bool:
        """Whether nobody waits for batches any more."""
        return self._is_interrupted

    @property
    def is_open(self) -> bool:
        """Whether the next iteration can use it: here, and with all workers alive."""
        alive = self._close.alive and os.getpid() == self._owner and not self._is_interrupted
        return alive and not any(_is_readable(worker.death) for worker in self.workers)

    def check(self) -> None:
        """Raise what stands in the way of another batch: a death, an end, or another process."""
        if os.getpid() != self._owner:
            raise UsageError(
                "This iterator was made in another process and its workers belong to that one."
                " Call iter(loader) in the process that uses it."
            )
        if self._end:
            raise WorkerDied(self._end)
        if not self._close.alive:
            raise UsageError("The workers of this iterator were ended. Call iter(loader) again.")

    def close(self) -> None:
        """End all workers; those that do not listen within some seconds are killed."""
        self._close()

    def worker(self, number: int) -> _Worker:
        """Worker `number`, started with all before it if need be."""
        while len(self.workers) <= number:
            worker = _Worker(self._job, len(self.workers), self._context, self.workers, self._shelf)
            self.workers.append(worker)
            self.processes.append(worker.process)
            kept = self._shelf.take(min(self._job.slots, MOST_DESCRIPTORS))
            if kept:
                worker.adopt(kept, kept[-1].memory.nbytes)
        return self.workers[number]

    def send(self, number: int, epoch: int, task: Task, receiver: Receiver) -> int:
        """Have a worker make a batch. Returns a number for it that was never used before, so that
        iterations over the same workers do not mix, one that was given up among them.
        """
        worker = self.worker(number)
        freed, retired = worker.take_back()
        self._numbers += 1
        self._receivers[self._numbers] = receiver
        worker.busy += 1
        parts = (TASK, self._numbers, epoch, task.key, task.indices, freed, retired)
        with contextlib.suppress(Closed):  # `receive` tells of its death
            worker.wire.send(pickle.dumps(parts, 5))
        return self._numbers

    def receive(self, wait_s: float | None) -> _Worker | None:
        """Hand what has come to those who asked for it. Waits up to `wait_s` for something. Returns
        a worker that has died, if there is one.
        """
        poll = select.poll()
        owners: dict[int, _Worker] = {}
        for worker in self.workers:
            for descriptor in (worker.wire.fileno(), worker.death):
                poll.register(descriptor, select.POLLIN)
                owners[descriptor] = worker
        poll.register(self._wake, select.POLLIN)
        ready = poll.poll(None if wait_s is None else max(0.0, wait_s) * 1000)
        dead = None
        found = (owners[descriptor] for descriptor, _ in ready if descriptor in owners)
        for worker in {id(w): w for w in found}.values():
            try:
                while (message := worker.wire.try_receive()) is not None:
                    self._open(worker, message)
                if _is_readable(worker.death):
                    raise Closed
            except Closed:
                dead = worker
        return dead

    def _open(self, worker: _Worker, message: bytes) -> None:
        kind, *parts = pickle.loads(message)
        if kind == SLOT:
            number, nbytes = parts
            slot = SharedSlot(_NOTHING, worker.wire.take_descriptor())
            worker.slots[number] = slot
            slot.memory = map_shared(slot.descriptor, nbytes)
            if self._pin:
                slot.memory = lock_pages(slot.memory)
            return
        if kind == DROP:
            for number in parts[0]:
                worker.drop_slot(number)
            return
        worker.busy -= 1
        task, *rest = parts
        made: Any
        try:
            made = pickle.loads(*rest) if kind == ERROR else self._assemble(worker, *rest)
        except Exception:
            if _is_readable(worker.death):
                # It had more to send: what goes torch's way is fetched from the worker.
                raise Closed from None
            made = ExceptionWrapper(where="while unpickling a batch")  # type: ignore[no-untyped-call]
        receiver = self._receivers.pop(task, None)
        if receiver is not None:
            receiver.accept(task, made)

    def _assemble(
        self, worker: _Worker, slot: int | None, places: Any, skeleton: bytes | None,
        times: tuple[float, float, float], samples: int, bad: list[BadSample],
    ) -> Made:  # fmt: skip
        memory = None if slot is None else worker.lend_slot(slot)
        nbytes = sum(dtype.itemsize * math.prod(shape) for _, dtype, shape, _ in places or ())
        if skeleton is None:
            batch = None
        elif places is None:
            batch = pickle.loads(skeleton)
        else:
            # All of it stays where pages may be locked for copies to a device.
            batch = unwrap(skeleton, places, memory, copies_small=False)
        return Made(batch, samples, nbytes, *times, bad)

    def raise_death(self, worker: _Worker, task: Task | None) -> None:
        """Tell of a worker's end as torch does, and more. Ends the others: what the dead one was to
        make is missing.
        """
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
        self._end = what
        self.close()
        raise WorkerDied(what)


def _start(process: Any) -> None:
    try:
        process.start()
    except (TypeError, AttributeError, pickle.PicklingError):
        warnings.warn(
            "Got pickle error when starting a worker process. Where processes are not forked, the"
            " dataset, its transform, collate_fn and worker_init_fn are pickled: make them"
            " picklable, or use"
            " multiprocessing_context='fork'.",
            stacklevel=2,
        )
        raise


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def shorten(indices: Any) -> str:
    """The first few of many."""
    if isinstance(indices, list) and len(indices) > 8:
        return f"{', '.join(map(str, indices[:8]))}, … ({len(indices)} in all)"
    return str(indices)


def _shut_down(workers: list[_Worker], wakers: tuple[int, int], owner: int) -> None:
    for descriptor in wakers:
        os.close(descriptor)
    if os.getpid() != owner:
        # A forked child: the processes are the parent's, only the descriptors are ours, too.
        for worker in workers:
            worker.close()
        return
    for worker in workers:
        worker.wire.hang_up()
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
