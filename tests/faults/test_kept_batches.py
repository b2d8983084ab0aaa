"""A batch belongs to the user for as long as anything of it lives."""

import gc
import threading
from collections import namedtuple
from typing import Any

import pytest
import torch

from slipstream import Loader
from tests.faults.conftest import MakeLoader
from tests.faults.datasets import Numbers, is_in_order
from tests.faults.leftovers import holdings

WIDTH = 5000


def slots_mapped() -> int:
    return sum(n for name, n in holdings()["shared mappings"].items() if "slipstream" in name)


@pytest.mark.parametrize("persistent", [False, True])
def test_all_batches_kept_are_right_after_loader_and_workers_are_gone(persistent: bool) -> None:
    loader = Loader(Numbers(320, WIDTH), 8, num_workers=2, persistent_workers=persistent)
    first, second = list(loader), list(loader)
    del loader
    gc.collect()
    assert is_in_order(first, 320)
    assert is_in_order(second, 320)
    assert is_in_order(list(Loader(Numbers(320, WIDTH), 8, num_workers=2)), 320)
    assert is_in_order(first + second, 640) is False
    assert is_in_order(second, 320)


@pytest.mark.parametrize("what", ["tensor", "view", "numpy", "numpy view", "storage", "memoryview"])
def test_anything_of_a_batch_keeps_it(what: str) -> None:
    """One small part of each batch is kept, and the batch itself let go of."""
    take: Any = {
        "tensor": lambda batch: batch,
        "view": lambda batch: batch[3:4, 7:],
        "numpy": lambda batch: batch.numpy(),
        "numpy view": lambda batch: batch.numpy()[3:4, 7::2],
        "storage": lambda batch: batch[3].untyped_storage(),
        "memoryview": lambda batch: memoryview(batch.numpy()[3]),
    }[what]
    loader = Loader(Numbers(240, WIDTH), 8, num_workers=2, persistent_workers=True)
    kept = [take(batch) for _ in range(2) for batch in loader]
    for number, part in enumerate(kept):
        first = 8 * (number % 30)
        if what == "storage":
            part = torch.tensor([], dtype=torch.int64).set_(part).view(8, WIDTH)[3]  # noqa: PLW2901
        values = set(torch.as_tensor(part).flatten().tolist()[:100])
        assert values <= set(range(first, first + 8)), f"batch {number} was written over"


Pair = namedtuple("Pair", ["x", "meta"])


def _nest(samples: list[torch.Tensor]) -> Any:
    batch = torch.stack(samples)
    return Pair(batch, {"double": 2 * batch, "array": batch.numpy(), "name": str(int(batch[0, 0]))})


def test_one_leaf_of_a_structure_keeps_its_slot() -> None:
    loader = Loader(Numbers(240, WIDTH), 8, num_workers=2, collate_fn=_nest)
    kept = [batch.meta["double"] for _ in range(2) for batch in loader]
    for number, double in enumerate(kept):
        assert int(double[0, 0]) == 16 * (number % 30)
        assert int(double[7, -1]) == 2 * (8 * (number % 30) + 7)


@pytest.mark.parametrize("way", ["workers", "engine"])
def test_writing_into_a_batch_changes_no_later_one(way: str, engine: MakeLoader) -> None:
    if way == "workers":
        loader = Loader(Numbers(240, WIDTH), 8, num_workers=2, persistent_workers=True)
        for _ in range(3):
            for number, batch in enumerate(loader):
                assert bool((batch == torch.arange(8 * number, 8 * number + 8)[:, None]).all())
                batch.fill_(-1)
        return
    loader = engine()
    whole = [batch["image"].clone() for batch in loader]
    loader.set_epoch(0)
    for batch, want in zip(loader, whole, strict=True):
        assert torch.equal(batch["image"], want)
        batch["image"].fill_(-1)


def test_batches_of_the_engine_kept(engine: MakeLoader) -> None:
    loader = engine()
    whole = [batch["image"].clone() for batch in loader]
    loader.set_epoch(0)
    kept = [batch["image"][:, 0].numpy() for batch in loader]
    del loader
    gc.collect()
    for part, want in zip(kept, whole, strict=True):
        assert torch.equal(torch.from_numpy(part), want[:, 0])


@pytest.mark.parametrize("persistent", [False, True])
def test_batches_dropped_by_other_threads(persistent: bool) -> None:
    loader = Loader(Numbers(400, WIDTH), 8, num_workers=2, persistent_workers=persistent)
    held: list[torch.Tensor] = []
    stop = threading.Event()
    wrong: list[int] = []

    def drop() -> None:
        while not stop.is_set():
            try:
                batch = held.pop()
            except IndexError:
                continue
            first = int(batch[0, 0])
            if not bool((batch == torch.arange(first, first + 8)[:, None]).all()):
                wrong.append(first)
            del batch

    threads = [threading.Thread(target=drop) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            for batch in loader:
                held.append(batch)
            del batch
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_slots_are_used_again_and_not_more_than_needed() -> None:
    loader = Loader(Numbers(800, WIDTH), 8, num_workers=2)
    for _ in range(3):
        most = 0
        for last in loader:
            assert last.shape == (8, WIDTH)
            most = max(most, slots_mapped())
        assert most <= 2 * (2 + 2) + 1, "workers times (prefetch_factor + spare), and `last`"
    before = slots_mapped()
    assert before > 0, "kept for the next epoch while the loader lives"
    del loader
    gc.collect()
    assert slots_mapped() == 1, "that of the batch at hand"
    del last
    assert slots_mapped() == 0
