"""Memory for batches that is used again when nobody holds the batch any more.

A fresh batch of some megabytes costs more in page faults than in copying. So memory is kept, and
lent out as a `Lease`: tensors and arrays made from it keep it lent for as long as one of them
lives, whoever holds it and wherever it went.
"""

import itertools
import math
import mmap
import os
import tempfile
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from slipstream.errors import StorageError
from slipstream.store.format import align

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]
ALIGNMENT = 64


class Forks:
    """Counts the forks of this process: what was lent before one is in a child's hands, too."""

    count = 0

    @classmethod
    def note(cls) -> None:
        """A fork is about to happen."""
        cls.count += 1


os.register_at_fork(before=Forks.note)


class Lease:
    """Owner of lent memory as NumPy sees it; gone when the last array or tensor on it is gone."""

    def __init__(self, memory: Bytes) -> None:
        # Keeps the memory itself alive, beyond the death of whoever lent it.
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__


def lend(memory: Bytes, give_back: Callable[..., object], *args: Any) -> Bytes:
    """`memory` as an array whose last user's end calls `give_back(*args)`, from any thread."""
    lease = Lease(memory)
    end = weakref.finalize(lease, give_back, *args)
    # At the interpreter's exit there is nothing left to give back to.
    end.atexit = False
    return np.asarray(lease)


class Leases(Generic[T]):
    """Lent memory, and a token for each piece that says what it was. Thread-safe.

    What comes back is only noted, without a line of Python: an exception in what the interpreter
    calls at an object's end is lost, and Ctrl-C is one.
    """

    def __init__(self) -> None:
        self._lent: dict[weakref.ref[Lease], T] = {}
        self._ended: deque[weakref.ref[Lease]] = deque()

    def lend(self, memory: Bytes, token: T) -> Bytes:
        """`memory` as an array that is lent for as long as anything of it lives."""
        lease = Lease(memory)
        self._lent[weakref.ref(lease, self._ended.append)] = token
        return np.asarray(lease)

    def take_back(self) -> list[T]:
        """Tokens of what has come back since the last call."""
        tokens: list[T] = []
        while True:
            try:
                tokens.append(self._lent.pop(self._ended.popleft()))
            except IndexError:
                return tokens

    def outstanding(self) -> list[T]:
        """Tokens of all that was not taken back."""
        return list(self._lent.values())


def tensor_at(
    memory: Bytes, offset: int, dtype: torch.dtype, shape: tuple[int, ...]
) -> torch.Tensor:
    """A contiguous tensor on lent memory."""
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).view(shape)


class RecycledMemory:
    """Gives out tensors on memory of this process that is used again. Thread-safe."""

    def __init__(self, *, keep: int) -> None:
        self._keep = keep
        # By (serial number, size), the longest unused first. Each step on it is one operation of
        # the dict's, so that threads need no lock, which a fork could leave locked for ever.
        self._free: dict[tuple[int, int], Bytes] = {}
        self._serial = itertools.count()
        self._largest = 0
        self._leases: Leases[Bytes] = Leases()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialized tensor."""
        size = _size_class(dtype.itemsize * max(1, math.prod(shape)))
        self._put(self._leases.take_back())
        memory = self._take(size)
        if memory is None:
            memory = np.empty(size, dtype=np.uint8)
        return tensor_at(self._leases.lend(memory, memory), 0, dtype, shape)

    def _take(self, size: int) -> Bytes | None:
        for key in reversed(list(self._free)):
            if key[1] == size:
                memory = self._free.pop(key, None)
                if memory is not None:
                    return memory
        return None

    def _put(self, returned: list[Bytes]) -> None:
        """Keep these, and of all the latest: `keep` of a size and, in bytes, `keep` large ones."""
        for memory in returned:
            self._free[next(self._serial), memory.nbytes] = memory
            # Falls so slowly that the small columns of a batch do not push out its large one.
            self._largest = max(memory.nbytes, self._largest - self._largest // 64)
        counts: Counter[int] = Counter()
        total = 0
        for key in reversed(list(self._free)):
            size = key[1]
            if counts[size] < self._keep and total + size <= self._keep * self._largest:
                counts[size] += 1
                total += size
            else:
                self._free.pop(key, None)


def _size_class(nbytes: int) -> int:
    """`nbytes` or up to an eighth more, so that batches of similar sizes use the same memory."""
    step = max(ALIGNMENT, (1 << (nbytes.bit_length() - 1)) // 8)
    return align(nbytes, step)


class PinnedMemory:
    """Gives out tensors on page-locked memory of torch's own allocator, which knows of copies that
    are still under way.
    """

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialized tensor."""
        return torch.empty(shape, dtype=dtype, pin_memory=True, device="cpu")


Memory = RecycledMemory | PinnedMemory


def make_shared(size: int) -> int:
    """A descriptor of `size` bytes of memory that other processes can map. It has no name, so it
    cannot be left behind, and the size of /dev/shm does not limit it.
    """
    descriptor = -1
    try:
        descriptor = _open_nameless()
        # Taken now: memory that is missing later would be a SIGBUS in the middle of a copy.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise StorageError(
            f"Cannot take {size:,} bytes of shared memory for a batch: {error.strerror}."
        ) from None
    return descriptor


def _open_nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("slipstream", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def map_shared(descriptor: int, size: int) -> Bytes:
    """Shared memory as an array. The descriptor may be closed afterwards."""
    try:
        # All pages at once: one by one they cost more than the copy into them.
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        mapped = mmap.mmap(descriptor, size, flags)
    except OSError as error:
        raise StorageError(
            f"Cannot map {size:,} bytes of shared memory: {error.strerror}."
        ) from None
    return np.frombuffer(mapped, dtype=np.uint8)


@dataclass(slots=True)
class SharedSlot:
    """Shared memory that a worker fills, with the descriptor that lets another one have it."""

    memory: Bytes
    descriptor: int


# Slots of a worker that is gone, by number, some of them lent; tokens are (number, `Forks.count`).
Lent = tuple[Leases[tuple[int, int]], dict[int, SharedSlot]]


class SlotShelf:
    """Slots whose workers are gone, kept for the next ones: their pages are there already."""

    def __init__(self) -> None:
        self._slots: list[SharedSlot] = []
        # The collector may end a pool, and so fill this, in the middle of anything.
        self._returned: deque[Lent] = deque()
        self._owner = os.getpid()
        self._close = weakref.finalize(self, _close_slots, self._slots, self._returned)

    def put(self, leases: Leases[tuple[int, int]], slots: dict[int, SharedSlot]) -> None:
        """Keep a worker's slots: those that are lent when they have come back. Any thread."""
        self._returned.append((leases, slots))

    def take(self, count: int) -> list[SharedSlot]:
        """Up to `count` slots, the largest first."""
        self._sort()
        return [self._slots.pop() for _ in range(min(count, len(self._slots)))]

    def trim(self, count: int) -> None:
        """Close all but the `count` largest."""
        self._sort()
        surplus = self._slots[: max(0, len(self._slots) - count)]
        del self._slots[: len(surplus)]
        _close_slots(surplus)

    def close(self) -> None:
        """Close all."""
        _close_slots(self._slots, self._returned)

    def _sort(self) -> None:
        if os.getpid() != self._owner:
            # A forked child: the parent goes on to fill these.
            self.close()
            self._owner = os.getpid()
        for _ in range(len(self._returned)):
            leases, slots = self._returned.popleft()
            for number, forks in leases.take_back():
                if forks != Forks.count:
                    os.close(slots.pop(number).descriptor)
            lent = {number for number, _ in leases.outstanding()}
            self._slots += [slots.pop(number) for number in set(slots) - lent]
            if slots:
                self._returned.append((leases, slots))
        self._slots.sort(key=lambda slot: slot.memory.nbytes)


def _close_slots(slots: list[SharedSlot], returned: deque[Lent] | None = None) -> None:
    while returned:
        slots += returned.popleft()[1].values()
    while slots:
        os.close(slots.pop().descriptor)


def lock_pages(memory: Bytes) -> Bytes:
    """`memory`, page-locked for CUDA's copies for as long as it lives, where the system allows it.

    Where it does not (a limit on locked memory, say) it stays as it is: copies then go through
    torch's own page-locked memory.
    """
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = memory.ctypes.data
    if int(runtime.cudaHostRegister(address, memory.nbytes, 0)) != 0:
        return memory
    return lend(memory, _unlock, runtime, address)


def _unlock(runtime: Any, address: int) -> None:
    runtime.cudaHostUnregister(address)
