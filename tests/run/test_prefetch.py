"""`fast-loader` has more batches made ahead where the loop waits less for it; nobody can tell."""

import ctypes
import math
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from slipstream.run.fix import Situation
from slipstream.run.fixes import fast_loader
from slipstream.run.loading import depth, workers
from slipstream.run.loading.depth import Depth, available_bytes, free_batches
from tests.run.test_fast_loader import CASES, Drawing, check_equal, flat, run, situation

WORKERS = 2
STEP_S, SLOW_S = 0.005, 0.06


class Bursty(Dataset[Any]):
    """Every 16th item is slow; on average two workers keep up with the loop easily."""

    def __init__(self, size: int = 16 * 24, side: int = 10) -> None:
        self.size, self.side = size, side

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if index % 16 == 15:
            time.sleep(SLOW_S)
        return torch.full((self.side, self.side), index), torch.rand(1), random.random()


class Pass:
    """One over a loader: what came, and how long the loop waited for it."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.batches: list[Any] = []
        self.waited_s = 0.0
        self.most_slots = 0
        iterator = iter(loader)
        while True:
            asked = time.perf_counter()
            batch = next(iterator, None)
            if batch is None:
                return
            self.waited_s += time.perf_counter() - asked
            self.batches.append(flat(batch))
            if len(self.batches) % 20 == 0:
                self.most_slots = max(self.most_slots, slots())
            time.sleep(STEP_S)


def slots() -> int:
    """Of workers, that this process can see."""
    return Path("/proc/self/maps").read_text().count("memfd:slipstream")


@pytest.fixture
def known() -> Iterator[Situation]:
    found = situation()
    undo = fast_loader.apply(found)
    yield found
    undo()
    assert not found.failures


def one_pass(**options: Any) -> Pass:
    torch.manual_seed(1)
    random.seed(2)
    return Pass(DataLoader(Bursty(), 1, num_workers=WORKERS, **options))


@pytest.mark.slow
def test_a_loop_over_bursty_samples_waits_less(
    known: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = one_pass()
    assert "batches ahead" in str(known.notes)
    monkeypatch.setattr(depth, "MOST", 2)
    as_given = one_pass()
    assert tuned.batches == as_given.batches
    # 24 slow samples of 60 ms; two batches for each worker cover 20 ms of that.
    assert as_given.waited_s > 0.5
    assert tuned.waited_s < 0.6 * as_given.waited_s
    assert tuned.most_slots <= WORKERS * (8 + workers.SPARE_SLOTS)
    assert as_given.most_slots <= WORKERS * (2 + workers.SPARE_SLOTS)


def test_the_next_epoch_begins_where_the_last_one_was(known: Situation) -> None:
    loader = DataLoader(Bursty(16 * 8), 1, num_workers=WORKERS)
    first, second = Pass(loader), iter(loader)
    assert 2 < second._prefetch_factor <= 8  # type: ignore[attr-defined]
    assert second._send_idx == WORKERS * second._prefetch_factor  # type: ignore[attr-defined]
    assert [flat(batch)[:5] for batch in second] == [batch[:5] for batch in first.batches]
    assert loader.prefetch_factor == 2


def test_as_deep_as_memory_allows(known: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_bytes = 8 * 100 * 100
    monkeypatch.setattr(depth, "_WORTH_S", 0.0)
    # Three batches for each worker, and no four.
    room = (3 * WORKERS + 1) * batch_bytes / depth.MEMORY_SHARE
    monkeypatch.setattr(depth, "available_bytes", lambda: room)
    found = Pass(DataLoader(Bursty(16 * 6, side=100), 1, num_workers=WORKERS))
    assert "each worker makes 3 batches ahead" in str(known.notes)
    assert found.most_slots <= WORKERS * (3 + workers.SPARE_SLOTS)


def test_a_loop_that_is_starved_gets_no_more(known: Situation) -> None:
    class Slow(Bursty):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.03)
            return torch.tensor(index)

    for _ in DataLoader(Slow(50), 1, num_workers=WORKERS):
        pass
    assert "batches ahead" not in str(known.notes)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """As deep as it may be as soon as it may be."""
    monkeypatch.setattr(depth, "_WORTH_S", -1.0)
    monkeypatch.setattr(depth, "_WORTH_SHARE", -1.0)
    monkeypatch.setattr(depth, "_LEAST_REST", -1.0)


# The loop may draw what these draw, or change what they look at.
NOT_FREE = {"sampler"}


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=[name for name, _ in CASES])
def test_batches_and_random_numbers_are_torchs(
    name: str, arguments: Callable[[], dict[str, Any]], eager: None
) -> None:
    """While the loop draws from the same generators."""

    def use() -> Any:
        given = {"num_workers": 2, **arguments()}
        loader = DataLoader(Drawing(), **given)
        own = given.get("generator")
        seen = []
        for _ in range(2):
            for batch in loader:
                drawn = torch.rand(1).item(), np.random.rand()
                mine = None if own is None else torch.rand(1, generator=own).item()
                seen.append((flat(batch), drawn, mine))
        return seen

    found = situation()
    plain = run(use)
    undo = fast_loader.apply(found)
    try:
        assert run(use) == plain
    finally:
        undo()
    assert not found.failures
    went_deeper = "batches ahead" in str(found.notes)
    assert went_deeper == (name not in NOT_FREE)


def test_early_ends_errors_and_loops_inside_loops(eager: None) -> None:
    class Bad(Drawing):
        def __getitem__(self, index: int) -> Any:
            if index == 30:
                raise KeyError("sample thirty")
            return super().__getitem__(index)

    def use() -> Any:
        loader = DataLoader(Drawing(), batch_size=2, shuffle=True, num_workers=2)
        seen: list[Any] = []
        for number, batch in enumerate(loader):
            seen.append(flat(batch))
            if number == 12:
                seen += [(flat(other), torch.rand(1).item()) for other in loader]
            if number == 15:
                break
        iterator = iter(DataLoader(Bad(), batch_size=1, num_workers=2))
        for _ in range(36):
            try:
                seen.append(flat(next(iterator)))
            except KeyError as error:
                seen.append(str(error))
        return seen

    check_equal(use)


def numbered(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def test_what_may_be_asked_for_sooner() -> None:
    data, own = numbered(100), torch.Generator()

    def free(sampler: Any, batch_size: int | None = 8, drop_last: bool = False) -> float:
        if batch_size is not None:
            sampler = BatchSampler(sampler, batch_size, drop_last)
        return free_batches(sampler, data)

    always: list[Any] = [
        SequentialSampler(data), RandomSampler(data), RandomSampler(data, replacement=True),
        RandomSampler(data, num_samples=1000), WeightedRandomSampler([0.5] * 100, 50),
        WeightedRandomSampler([0.5] * 100, 50, generator=own), range(50), (1, 2, 3),
        DistributedSampler(data, 2, 0), SubsetRandomSampler(range(50)),
    ]  # fmt: skip
    assert [free(sampler) for sampler in always] == [math.inf] * len(always)
    assert free(SequentialSampler(data), None) == math.inf
    # Up to the end of the first permutation; then it draws again.
    assert free(RandomSampler(data, generator=own)) == 12
    assert free(RandomSampler(data, generator=own), None) == 100
    assert free(RandomSampler(data, generator=own, num_samples=1000)) == 12
    assert free(RandomSampler(data, generator=own, num_samples=40)) == 5

    class Own(RandomSampler):
        pass

    class OwnBatches(BatchSampler):
        pass

    never: list[Any] = [
        RandomSampler(data, generator=own, replacement=True), SubsetRandomSampler([1, 2, 3]),
        [1, 2, 3], Own(data), iter(range(9)),
    ]  # fmt: skip
    assert [free(sampler) for sampler in never] == [0] * len(never)
    assert free(OwnBatches(SequentialSampler(data), 4, False), None) == 0
    assert free([[1, 2], [3]], None) == 0


def test_not_where_the_loop_shares_memory_with_workers(tmp_path: Path) -> None:
    class Holding(Dataset[Any]):
        def __init__(self, value: Any) -> None:
            self.value = value

        def __len__(self) -> int:
            return 1

    order = SequentialSampler(range(10))
    (tmp_path / "file").write_bytes(bytes(64))
    tensor: Any = torch.zeros(3)
    shared: list[Any] = [
        multiprocessing.Value("i", 0), multiprocessing.Array("d", 3), multiprocessing.RawValue("i"),
        multiprocessing.RawArray("i", 3), multiprocessing.Event(), ctypes.c_int(3),
        tensor.share_memory_(), [tensor], {"step": tensor},
        np.memmap(tmp_path / "file", mode="r+"),
    ]  # fmt: skip
    for value in shared:
        assert free_batches(order, Holding(value)) == 0
        assert free_batches(order, ConcatDataset([Holding(1), Holding(Holding((value,)))])) == 0
    plain = [3, "x", torch.zeros(3), np.zeros(3), np.memmap(tmp_path / "file", mode="r"), None]
    for value in plain:
        assert free_batches(order, Holding(value)) == math.inf


def test_what_a_container_may_take_counts(tmp_path: Path) -> None:
    everything = available_bytes(tmp_path)
    assert everything > 0
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert available_bytes(tmp_path) == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path) > 3000


def test_ranks_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "available_bytes", lambda: 8 * 16 * 1000)
    found = Depth(2, 2, print)
    found.made(0, 0.0, 1000)
    assert found.most() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert found.most() == 2
