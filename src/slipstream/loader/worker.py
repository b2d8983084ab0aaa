"""A worker process: reads samples, collates them into a shared slot, says where they lie."""

import gc
import os
import pickle
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.utils.data._utils.worker as torch_worker
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.signal_handling import (  # type: ignore[attr-defined]
    _set_worker_signal_handlers,
)

from slipstream.errors import StorageError
from slipstream.loader.collating import SlotCollate
from slipstream.loader.fetching import fetch
from slipstream.loader.memory import Bytes, make_shared, map_shared
from slipstream.loader.parcel import place, wrap
from slipstream.loader.samples import batch_under_way
from slipstream.loader.seeding import seed_for_batch, seed_for_worker
from slipstream.loader.wire import Closed, Wire
from slipstream.store.format import align

TASK, ADOPT = range(2)  # to the worker
BATCH, ERROR, SLOT, DROP = range(4)  # from it
_PAGE = 1 << 16
# A free slot that is larger than this, and so many times what is needed, is given up.
_TOLERATED_BYTES = 1 << 20
_TOLERATED_TIMES = 4


@dataclass(slots=True)
class Job:
    """What workers are for. Inherited by forked ones, pickled for others."""

    dataset: Any
    collate_fn: Callable[..., Any]
    auto_collation: bool
    init_fn: Callable[[int], None] | None
    workers: int
    base_seed: int
    # None: random numbers run on from batch to batch as in torch's workers.
    batch_seed: int | None
    on_error: str
    # Whether a sample comes once in an epoch: then its random numbers are its own.
    by_sample: bool
    slots: int


def run_worker(job: Job, number: int, end: socket.socket, parent: int, others: Any) -> None:
    """Target of a worker process. `others` are the loader's ends of all pairs, inherited by a fork:
    held open here they would hide the loader's death from the other workers.
    """
    for other in others:
        other.close()
    # The collector would write to every page of what was inherited, and so copy it.
    gc.freeze()
    try:
        watch_parent(parent)
        _set_worker_signal_handlers()
        torch.set_num_threads(1)
        seed = seed_for_worker(job.base_seed, number)
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=number, num_workers=job.workers, seed=seed, dataset=job.dataset
        )
        _serve(job, number, Wire(end))
    except (KeyboardInterrupt, Closed):
        # The loader has the same Ctrl-C to answer, or is done with us.
        pass


def watch_parent(parent: int) -> None:
    """End this process when the loader's dies, even in the middle of a sample."""

    def wait() -> None:
        if hasattr(os, "pidfd_open"):
            try:
                descriptor = os.pidfd_open(parent)
            except OSError:
                os._exit(1)
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
        else:
            own = os.getppid()
            while os.getppid() == own:
                time.sleep(1)
        os._exit(1)

    threading.Thread(target=wait, name="slipstream-parent-watch", daemon=True).start()


def _serve(job: Job, number: int, wire: Wire) -> None:
    failure = None
    try:
        if job.init_fn is not None:
            job.init_fn(number)
    except Exception:
        failure = _caught(number)
    maker = _Maker(job, wire)
    while True:
        kind, *parts = pickle.loads(wire.receive())
        if kind == ADOPT:
            maker.adopt(*parts)
            continue
        task, epoch, key, index, freed, retired = parts
        maker.slots.free.extend(freed)
        maker.slots.forget(retired)
        if failure is None:
            try:
                maker.make(task, epoch, key, index)
                continue
            except Exception as error:
                if isinstance(error, Closed):
                    raise
                failure = _caught(number)
        wire.send(pickle.dumps((ERROR, task, failure)))
        failure = None


def _caught(number: int) -> bytes:
    """The exception at hand, pickled as torch's loader would send it."""
    failure = ExceptionWrapper(where=f"in DataLoader worker process {number}")  # type: ignore[no-untyped-call]
    if not issubclass(failure.exc_type, StopIteration):
        try:
            return bytes(ForkingPickler.dumps(failure))
        except Exception:  # the class of the exception does not exist but here
            pass
    # A StopIteration would end the loop as if all were well. The text says what it was.
    failure.exc_type = RuntimeError
    return pickle.dumps(failure)


class _Maker:
    def __init__(self, job: Job, wire: Wire) -> None:
        self.slots = Slots(wire, job.slots)
        self._job = job
        self._wire = wire
        self._expected = 0
        self._direct = job.auto_collation and job.collate_fn is torch.utils.data.default_collate

    def adopt(self, sizes: list[int], expected: int) -> None:
        """Take over slots of workers that are gone; the last batch was so large."""
        self._expected = expected
        for nbytes in sizes:
            self.slots.adopt(nbytes)

    def make(self, task: int, epoch: int, key: int, index: Any) -> None:
        """Make one batch and send it."""
        job = self._job
        if job.batch_seed is not None:
            seed_for_batch(job.batch_seed, epoch, key)
        started, cpu = time.perf_counter(), time.thread_time()
        samples, bad = self._fetch(index, epoch, key)
        fetched = time.perf_counter()
        if job.auto_collation and not samples and bad:
            self._send((BATCH, task, None, [], None, (fetched - started, 0.0, 0.0), 0, bad))
            return
        slot = self.slots.take(self._expected) if self._expected else None
        try:
            if self._direct:
                batch = SlotCollate(slot[1] if slot else None).collate(samples)
            else:
                batch = job.collate_fn(samples)
            del samples
            parcel = wrap(batch)
        except BaseException:
            if slot is not None:
                self.slots.free.append(slot[0])
            raise
        nbytes = parcel.nbytes
        if nbytes and (slot is None or slot[1].nbytes < nbytes):
            if slot is not None:
                self.slots.free.append(slot[0])
            slot = self.slots.take(nbytes)
        self._expected = max(nbytes, self._expected * 7 // 8)
        left_out = len(bad) if job.on_error == "skip" else 0
        size = len(index) - left_out if job.auto_collation else 1
        if nbytes and slot is None:
            # All slots are lent out or memory is short: this batch goes torch's way.
            skeleton, places = bytes(ForkingPickler.dumps(batch)), None
        else:
            skeleton = parcel.skeleton
            places = place(parcel.leaves, slot[1] if slot else None)
        done = time.perf_counter()
        times = (fetched - started, done - fetched, time.thread_time() - cpu)
        self._send((BATCH, task, slot and slot[0], places, skeleton, times, size, bad))

    def _send(self, message: tuple[Any, ...]) -> None:
        self._wire.send(pickle.dumps(message, 5))

    def _fetch(self, index: Any, epoch: int, key: int) -> tuple[Any, list[Any]]:
        dataset, job = self._job.dataset, self._job
        own_key = None if job.by_sample else key
        if job.auto_collation:
            return fetch(dataset, index, epoch=epoch, key=own_key, on_error=job.on_error)
        with batch_under_way(dataset, epoch, own_key):
            return dataset[index], []


class Slots:
    """This worker's shared memory. The loader says which slots it has given up."""

    def __init__(self, wire: Wire, limit: int) -> None:
        self.free: list[int] = []
        self._wire = wire
        self._limit = limit
        self._slots: dict[int, Bytes] = {}
        self._made = 0

    def adopt(self, nbytes: int) -> None:
        """Take over a slot whose descriptor has come; without memory for it, leave it alone."""
        number, self._made = self._made, self._made + 1
        try:
            descriptor = self._wire.take_descriptor()
        except StorageError:
            return
        try:
            self._slots[number] = map_shared(descriptor, nbytes)
        except StorageError:
            return
        finally:
            os.close(descriptor)
        self.free.append(number)

    def forget(self, numbers: list[int]) -> None:
        """The loader does not give these back: another process may look at them."""
        for number in numbers:
            del self._slots[number]

    def take(self, nbytes: int) -> tuple[int, Bytes] | None:
        """A free slot of at least `nbytes`, new if need be; None when there can be no more."""
        most = max(_TOLERATED_BYTES, _TOLERATED_TIMES * nbytes)
        self._drop([number for number in self.free if self._slots[number].nbytes > most])
        for number in reversed(self.free):
            if self._slots[number].nbytes >= nbytes:
                self.free.remove(number)
                return number, self._slots[number]
        self._drop(self.free.copy())
        if len(self._slots) >= self._limit:
            return None
        return self._make(align(nbytes, _PAGE))

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            self.free.remove(number)
            del self._slots[number]
        if numbers:
            self._wire.send(pickle.dumps((DROP, numbers)))

    def _make(self, nbytes: int) -> tuple[int, Bytes] | None:
        number, self._made = self._made, self._made + 1
        try:
            descriptor = make_shared(nbytes)
            try:
                slot = map_shared(descriptor, nbytes)
                self._wire.send(pickle.dumps((SLOT, number, nbytes)), (descriptor,))
            finally:
                os.close(descriptor)
        except (StorageError, OSError):
            # No memory, or no descriptors: what there is has to do.
            self._limit = len(self._slots)
            return None
        self._slots[number] = slot
        return number, slot
