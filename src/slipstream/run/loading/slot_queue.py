"""What torch's workers put their batches into: tensors lie in shared slots that are used again.

torch sends each tensor of each batch in a shared file of its own, made, mapped and thrown away for
that batch. This queue does what theirs does, for workers that are forked.
"""

import contextlib
import mmap
import os
import pickle
import queue
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch.utils.data._utils.worker as torch_worker

from slipstream.loader.memory import Bytes, Forks, Leases, map_shared
from slipstream.loader.parcel import place, unwrap, wrap
from slipstream.loader.wire import Closed, Wire
from slipstream.loader.worker import DROP, SLOT, Slots
from slipstream.run.loading.seeding import seed_worker
from slipstream.run.pictures.batches import LateCollate

_ITEM = 10
_LONG = 1 << 15


class SlotQueue:
    """Made before the workers are forked. Worker k writes to the k-th pair of sockets, and has
    `most_slots` of its own. `at_arrival` is told of every item: what it is the item of, when it was
    sent, and its bytes.
    """

    def __init__(
        self, workers: int, most_slots: int,
        at_arrival: Callable[[Any, float, int], None] = lambda key, at, nbytes: None,
    ) -> None:  # fmt: skip
        self._at_arrival = at_arrival
        # Shared with the workers.
        self._most_slots = memoryview(mmap.mmap(-1, 8)).cast("q")
        self._most_slots[0] = most_slots
        self._pairs = [socket.socketpair() for _ in range(workers)]
        self._owner = os.getpid()
        self._readers = [_Reader(ours) for ours, _ in self._pairs]
        self._local: deque[Any] = deque()
        self._arrived: deque[Any] = deque()
        self._wake, self._waker = os.pipe()
        self._writer: _Writer | None = None
        # Whether what a worker was made from is unchanged; and who of them has found it is not.
        self.is_same: Callable[[], bool] | None = None
        self._changes = mmap.mmap(-1, workers)
        # A worker's collate and its own queue share slots; and so does a thread that pins.
        self._lock = threading.Lock()
        self._close = weakref.finalize(
            self, _close_all, self._readers, self._pairs, [self._wake, self._waker]
        )

    # In the loop's process.

    def forget_workers_ends(self) -> None:
        """After the workers were started."""
        for _, theirs in self._pairs:
            theirs.close()

    def allow(self, most_slots: int) -> None:
        """To each worker, from its next item on."""
        self._most_slots[0] = most_slots

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next item of any worker. Raises `queue.Empty`."""
        deadline = None
        if timeout is not None or not block:
            deadline = time.monotonic() + (timeout or 0.0 if block else 0.0)
        with self._lock:
            while not self._arrived:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                # What has come need not be an item.
                if not self._collect(left):
                    raise queue.Empty
            return self._arrived.popleft()

    def _collect(self, timeout: float | None) -> bool:
        """Take what comes first. Whether anything came in time."""
        poll = select.poll()
        readers = {reader.wire.fileno(): reader for reader in self._readers if reader.is_open}
        for descriptor in (*readers, self._wake):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if timeout is None else 1000 * timeout)
        for descriptor, _ in ready:
            if descriptor == self._wake:
                os.read(self._wake, 1)
                self._arrived.append(self._local.popleft())
            else:
                for item, at, nbytes in readers[descriptor].read():
                    self._at_arrival(item[0], at, nbytes)
                    self._arrived.append(item)
        return bool(ready)

    def forget_changes(self) -> None:
        """Before workers are asked."""
        # One that does not answer as expected has changed.
        self._changes[:] = b"\1" * len(self._changes)

    def has_changes(self) -> bool:
        """Whether one of them has found any."""
        return any(self._changes[:])

    def close(self) -> None:
        """Let go of the sockets, in whichever process."""
        self._close()

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    join_thread = cancel_join_thread

    # In a worker, but for what wakes the loop's own thread up.

    def put(self, item: Any) -> None:
        """Send it."""
        if os.getpid() == self._owner:
            self._local.append(item)
            os.write(self._waker, b"!")
            return
        if self.is_same is not None and isinstance(item[0], torch_worker._ResumeIteration):
            self._begin_again(item[0].seed, self.is_same)
        self.writer().put(item)

    def _begin_again(self, seed: int | None, is_same: Callable[[], bool]) -> None:
        """The loop asks, or tells the seed of its next pass."""
        info = torch_worker.get_worker_info()
        assert info is not None
        if seed is None:
            self._changes[info.id] = 0 if is_same() else 1
        else:
            seed_worker(seed)

    def writer(self) -> "_Writer":
        """This worker's end."""
        if self._writer is None:
            info = torch_worker.get_worker_info()
            assert info is not None
            number = int(info.id)
            for k, (ours, theirs) in enumerate(self._pairs):
                ours.close()
                if k != number:
                    theirs.close()
            self._writer = _Writer(Wire(self._pairs[number][1]), self._most_slots)
        return self._writer


class SlotCollating:
    """`default_collate` in a worker: tensors are stacked where they are sent from."""

    def __init__(self, slots: SlotQueue) -> None:
        self._slots = slots

    def __call__(self, samples: Sequence[Any]) -> Any:
        """The batch."""
        return LateCollate(self._slots.writer().next_slot()).collate(samples)


class _Writer:
    def __init__(self, wire: Wire, most_slots: Any) -> None:
        """The number of slots is the first of `most_slots`, and may become more."""
        self._wire = wire
        self._most_slots, self._allowed = most_slots, int(most_slots[0])
        self._slots = Slots(wire, self._allowed)
        self._taken: tuple[int, Bytes] | None = None
        self._expected = 0

    def next_slot(self) -> Bytes | None:
        """Where the next item may lie already."""
        self._take_back()
        if self._taken is None and self._expected:
            self._taken = self._slots.take(self._expected)
        return None if self._taken is None else self._taken[1]

    def put(self, item: Any) -> None:
        parcel = wrap(item)
        if is_long := len(parcel.skeleton) > _LONG:
            # A worker would wait until the loop takes it out of the socket.
            parcel.leaves.append(np.frombuffer(parcel.skeleton, dtype=np.uint8))
        slot, self._taken = self._taken, None
        nbytes = parcel.nbytes
        if nbytes and (slot is None or slot[1].nbytes < nbytes):
            self._give_back(slot)
            self._take_back()
            slot = self._slots.take(nbytes)
        elif not nbytes:
            self._give_back(slot)
            slot = None
        if nbytes:
            self._expected = max(nbytes, self._expected * 7 // 8)
        if nbytes and slot is None:
            # Memory is short: this one goes torch's way.
            message: Any = (_ITEM, None, nbytes, None, bytes(ForkingPickler.dumps(item)))
        else:
            places = place(parcel.leaves, slot and slot[1])
            skeleton = None if is_long else parcel.skeleton
            message = (_ITEM, slot and slot[0], nbytes, places, skeleton)
        with contextlib.suppress(Closed):  # the loop is done
            self._wire.send(pickle.dumps((*message, time.monotonic()), 5))

    def _give_back(self, slot: tuple[int, Bytes] | None) -> None:
        if slot is not None:
            self._slots.free.append(slot[0])

    def _take_back(self) -> None:
        if self._most_slots[0] > self._allowed:
            self._slots._limit += self._most_slots[0] - self._allowed
            self._allowed = self._most_slots[0]
        with contextlib.suppress(Closed):
            while (message := self._wire.try_receive()) is not None:
                freed, retired = pickle.loads(message)
                self._slots.free.extend(freed)
                self._slots.forget(retired)


class _Reader:
    def __init__(self, end: socket.socket) -> None:
        self.wire = Wire(end)
        self.is_open = True
        self._slots: dict[int, Bytes] = {}
        self._leases: Leases[tuple[int, int]] = Leases()

    def read(self) -> list[tuple[Any, float, int]]:
        """Items that have come, with when they were sent and their bytes; and to the worker what
        it may use again.
        """
        items = []
        try:
            while (message := self.wire.try_receive()) is not None:
                kind, number, *parts = pickle.loads(message)
                if kind == SLOT:
                    self._map(number, parts[0])
                elif kind == DROP:
                    for slot in number:
                        self._slots.pop(slot, None)
                else:
                    nbytes, places, skeleton, at = parts
                    items.append((self._open(number, places, skeleton), at, nbytes))
            self._give_back()
        except Closed:
            # torch notices by itself when a worker has died.
            self.is_open = False
        return items

    def _map(self, number: int, nbytes: int) -> None:
        descriptor = self.wire.take_descriptor()
        try:
            self._slots[number] = map_shared(descriptor, nbytes)
        finally:
            os.close(descriptor)

    def _open(self, slot: int | None, places: Any, skeleton: bytes | None) -> Any:
        if places is None and skeleton is not None:
            return pickle.loads(skeleton)
        memory = None
        if slot is not None:
            memory = self._leases.lend(self._slots[slot], (slot, Forks.count))
        if skeleton is None:
            start, _, (length,), _ = places[-1]
            assert memory is not None
            skeleton = memory[start : start + length].tobytes()
        return unwrap(skeleton, places, memory)

    def _give_back(self) -> None:
        freed: list[int] = []
        retired: list[int] = []
        for slot, forks in self._leases.take_back():
            if forks == Forks.count:
                freed.append(slot)
            else:
                # Another process that was forked may look at it for as long as it lives.
                self._slots.pop(slot, None)
                retired.append(slot)
        if freed or retired:
            self.wire.send(pickle.dumps((freed, retired)))


def _close_all(
    readers: list[_Reader], pairs: list[tuple[socket.socket, socket.socket]], wakers: list[int]
) -> None:
    for reader in readers:
        reader.wire.close()
    for _, theirs in pairs:
        theirs.close()
    for descriptor in wakers:
        os.close(descriptor)
