"""Memory that is lent out comes back once, when the last user is gone, and not before."""

import gc
import os
import pickle
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from slipstream import Loader
from slipstream.loader.memory import (
    Forks,
    Leases,
    RecycledMemory,
    SharedSlot,
    SlotShelf,
    lend,
    make_shared,
    map_shared,
    tensor_at,
)
from slipstream.loader.worker import DROP, SLOT, Slots


def shared_slot(nbytes: int) -> SharedSlot:
    descriptor = make_shared(nbytes)
    return SharedSlot(map_shared(descriptor, nbytes), descriptor)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


USERS: dict[str, Any] = {
    "array": lambda lent: lent,
    "slice": lambda lent: lent[3:],
    "tensor": torch.from_numpy,
    "view": lambda lent: tensor_at(lent, 0, torch.int32, (4, 2))[1:],
    "array of a tensor": lambda lent: tensor_at(lent, 8, torch.int32, (4,)).numpy()[1:],
    "storage": lambda lent: tensor_at(lent, 0, torch.uint8, (32,)).untyped_storage(),
    "memoryview": memoryview,
}


@pytest.mark.parametrize("user", USERS)
def test_a_lease_ends_with_its_last_user(user: str) -> None:
    returned: list[str] = []
    lent = lend(np.zeros(64, dtype=np.uint8), returned.append, "back")
    part = USERS[user](lent)
    del lent
    assert returned == []
    del part
    assert returned == ["back"]


def test_lent_memory_is_aligned_and_recycled() -> None:
    memory = RecycledMemory(keep=2)
    first = memory.empty((100, 7), torch.float32)
    address = first.data_ptr()
    second = memory.empty((100, 7), torch.float32)
    assert second.data_ptr() != address
    part = first[3]
    del first
    assert memory.empty((100, 7), torch.float32).data_ptr() not in (address, second.data_ptr())
    del part
    gc.collect()
    assert address in {memory.empty((700,), torch.float32).data_ptr() for _ in range(1)} | {
        memory.empty((700,), torch.float32).data_ptr()
    }


def test_no_more_is_kept_than_asked_for() -> None:
    memory = RecycledMemory(keep=2)
    tensors = [memory.empty((1000,), torch.uint8) for _ in range(5)]
    del tensors
    memory.empty((1,), torch.int64)
    assert len(memory._free) == 2


def kept_bytes(memory: RecycledMemory) -> int:
    return sum(buffer.nbytes for buffer in memory._free.values())


def test_many_sizes_do_not_add_up() -> None:
    memory = RecycledMemory(keep=4)
    most = 0
    for count in range(1000, 251_000, 1000):
        held = [memory.empty((count,), torch.uint8) for _ in range(4)]
        del held
        memory.empty((1,), torch.uint8)
        most = max(most, kept_bytes(memory))
    assert most <= 4 * 1.125 * 250_000


def test_similar_sizes_use_the_same_memory() -> None:
    memory = RecycledMemory(keep=4)
    address = memory.empty((1_000_000,), torch.uint8).data_ptr()
    assert memory.empty((990_000,), torch.uint8).data_ptr() == address
    assert memory.empty((250_000,), torch.float32).data_ptr() == address


def test_memory_is_never_smaller_than_asked_for() -> None:
    memory = RecycledMemory(keep=4)
    for count in [*range(1, 3000), 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20 + 5]:
        tensor = memory.empty((count,), torch.uint8)
        (lent,) = memory._leases.outstanding()
        assert count <= lent.nbytes <= max(count + 63, count * 1.125)
        assert tensor.untyped_storage().nbytes() == count
        del lent, tensor


def test_small_columns_do_not_push_out_the_large_one() -> None:
    memory = RecycledMemory(keep=2)
    addresses = set()
    for _ in range(50):
        image = memory.empty((4 << 20,), torch.uint8)
        labels = [memory.empty((64,), torch.int64) for _ in range(10)]
        addresses.add(image.data_ptr())
        del image, labels
    assert len(addresses) == 1


def test_what_one_large_batch_took_is_given_up() -> None:
    memory = RecycledMemory(keep=2)
    memory.empty((8 << 20,), torch.uint8)
    for _ in range(200):
        memory.empty((1000,), torch.uint8)
    assert kept_bytes(memory) <= 1 << 20


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    assert RecycledMemory(keep=1).empty(shape, torch.int64).shape == shape


def test_tensors_outlive_the_memory_that_lent_them() -> None:
    memory = RecycledMemory(keep=2)
    tensor = memory.empty((1000,), torch.int64).fill_(7)
    del memory
    gc.collect()
    assert bool((tensor == 7).all())


def test_many_threads_never_share_memory() -> None:
    memory = RecycledMemory(keep=4)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(2000):
            tensor = memory.empty((64,), torch.int64).fill_(number)
            if not bool((tensor == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_shared_memory_is_seen_by_other_mappings() -> None:
    descriptor = make_shared(4096)
    one, other = map_shared(descriptor, 4096), map_shared(descriptor, 4096)
    os.close(descriptor)
    one[:] = 5
    assert (other == 5).all()


def test_a_shelf_gives_the_largest_first_and_closes_the_rest() -> None:
    shelf = SlotShelf()
    slots = [shared_slot(4096 * k) for k in (2, 1, 3)]
    shelf.put(Leases(), dict(enumerate(slots)))
    taken = shelf.take(1)
    assert [slot.memory.nbytes for slot in taken] == [4096 * 3]
    shelf.trim(1)
    assert [is_open(slot.descriptor) for slot in slots] == [True, False, True]
    shelf.put(Leases(), {0: taken[0]})
    del shelf
    gc.collect()
    assert not any(is_open(slot.descriptor) for slot in slots)


def test_lent_slots_come_to_the_shelf_when_their_last_user_is_gone() -> None:
    shelf, leases = SlotShelf(), Leases[tuple[int, int]]()
    slots = {number: shared_slot(4096) for number in range(3)}
    descriptors = [slot.descriptor for slot in slots.values()]
    kept = leases.lend(slots[1].memory, (1, Forks.count))
    before_a_fork = leases.lend(slots[2].memory, (2, Forks.count - 1))
    shelf.put(leases, slots)
    assert len(shelf.take(9)) == 1
    kept[:] = 5
    del kept, before_a_fork
    assert [slot.descriptor for slot in shelf.take(9)] == descriptors[1:2]
    assert not is_open(descriptors[2]), "a forked child may still look at this one"
    for descriptor in descriptors[:2]:
        os.close(descriptor)


def test_ctrl_c_is_not_lost_while_memory_comes_back() -> None:
    """Many chances: the signal comes while a loop does nothing but let go of tensors."""
    memory = RecycledMemory(keep=4)
    for _ in range(200):
        timer = threading.Timer(0.002, signal.raise_signal, (signal.SIGINT,))
        deadline = time.monotonic() + 5
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            while time.monotonic() < deadline:
                memory.empty((4,), torch.uint8)
        timer.join()


def test_a_forked_child_does_not_take_its_parents_slots() -> None:
    shelf = SlotShelf()
    shelf.put(Leases(), {0: shared_slot(4096)})
    forks = Forks.count
    child = os.fork()
    if not child:
        os._exit(len(shelf.take(4)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Forks.count == forks + 1
    assert len(shelf.take(4)) == 1


def test_slots_come_back_from_other_threads_while_they_are_sorted() -> None:
    shelf = SlotShelf()
    memory = np.zeros(1, dtype=np.uint8)
    stop = threading.Event()
    put = 0

    def return_slots() -> None:
        nonlocal put
        while not stop.is_set():
            shelf.put(Leases(), {0: SharedSlot(memory, -1)})
            put += 1

    thread = threading.Thread(target=return_slots)
    thread.start()
    taken = 0
    while taken < 20_000:
        taken += len(shelf.take(1 << 30))
    stop.set()
    thread.join()
    assert taken + len(shelf.take(1 << 30)) == put


class Messages:
    """In place of a wire: what a worker's slots tell the loader."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, message: bytes, descriptors: tuple[int, ...] = ()) -> None:
        self.sent.append(pickle.loads(message))


def test_slots_that_are_far_too_large_are_dropped() -> None:
    wire = Messages()
    slots = Slots(wire, 4)  # type: ignore[arg-type]
    taken = [slots.take(nbytes) for nbytes in (8 << 20, 1 << 20, 3 << 20)]
    slots.free.extend(slot[0] for slot in taken if slot)
    assert slots.take(1 << 20) is not None
    assert wire.sent[3:] == [(DROP, [0])]
    assert slots.free == [1]


def test_slots_of_steady_batches_stay() -> None:
    wire = Messages()
    slots = Slots(wire, 4)  # type: ignore[arg-type]
    for _ in range(20):
        taken = [slots.take(5 << 20) for _ in range(3)]
        slots.free.extend(slot[0] for slot in taken if slot)
    assert [message[0] for message in wire.sent] == [SLOT] * 3


class Outliers(Dataset[torch.Tensor]):
    """Small samples with some large ones in the first half."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full(
            (8 << 20 if index in (20, 21, 60) else 1000,), index % 256, dtype=torch.uint8
        )


def test_shared_memory_shrinks_after_outliers() -> None:
    sizes = []
    for index, batch in enumerate(Loader(Outliers(), 1, num_workers=2)):
        assert bool((batch == index % 256).all())
        lines = [
            line
            for line in Path("/proc/self/maps").read_text().splitlines()
            if "memfd:slip" in line
        ]
        ends = [re.match("([0-9a-f]+)-([0-9a-f]+)", line).groups() for line in lines]  # type: ignore[union-attr]
        sizes.append(sum(int(end, 16) - int(start, 16) for start, end in ends))
    assert max(sizes) >= 8 << 20
    assert sizes[-1] <= 8 << 20
