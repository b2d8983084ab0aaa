"""Loaders inside loaders, in forked children, and across forks."""

import gc
import os
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream import Loader, open_dataset
from slipstream.errors import UsageError
from tests.faults.conftest import MakeLoader, engine_loader
from tests.faults.datasets import Numbers, fork, is_in_order, run_forked


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_within_a_loop_over_the_same_loader(persistent: bool) -> None:
    loader = Loader(Numbers(32), 8, num_workers=2, persistent_workers=persistent)
    for outer, a in enumerate(loader):
        assert int(a[0, 0]) == 8 * outer
        assert is_in_order(list(loader), 32)
    assert outer == 3


def test_two_iterators_by_turns_on_kept_workers() -> None:
    loader = Loader(Numbers(64), 8, num_workers=2, persistent_workers=True)
    for a, b in zip(loader, loader, strict=True):
        assert torch.equal(a, b)


def test_a_loop_within_a_loop_in_the_engine(engine: MakeLoader) -> None:
    loader = engine()
    inner = 0
    for _ in loader:
        inner += len(list(loader))
    assert inner == 36


class _LoadsWithin(Numbers):
    """Each sample is the sum of a whole loader's batches."""

    def __init__(self, packed: Path | None) -> None:
        super().__init__(8)
        self.packed = packed

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.packed is not None:
            batches: Any = engine_loader(self.packed, num_workers=1)
            return torch.cat([batch["image"] for batch in batches]).double().sum().round()
        return torch.cat(list(Loader(Numbers(10), 4))).sum()


def test_a_loader_within_a_worker() -> None:
    sums = torch.cat(list(Loader(_LoadsWithin(None), 4, num_workers=2)))
    assert sums.tolist() == [16 * 45] * 8


def test_the_engine_within_a_worker(packed: Path) -> None:
    dataset = _LoadsWithin(packed)
    sums = torch.cat(list(Loader(dataset, 4, num_workers=2)))
    assert torch.equal(sums, dataset[0].expand(8))


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_made_before_a_fork_works_on_both_sides(
    persistent: bool, used_before: bool
) -> None:
    """Both at the same time: they must not share slots or workers."""
    loader = Loader(Numbers(2000, width=5000), 8, num_workers=1, persistent_workers=persistent)
    if used_before:
        for _ in zip(range(20), loader, strict=False):
            pass

    def consume() -> int:
        kept: list[torch.Tensor] = []
        for batch in loader:
            kept = [*kept[-3:], batch]
            last = int(batch[0, 0])
            for old, number in zip(reversed(kept), range(last, -1, -8), strict=False):
                want = torch.arange(number, number + 8)[:, None]
                if not bool((old == want).all()):
                    return 1
        loader.close()
        return 0

    child = fork(consume)
    mine = consume()
    _, status = os.waitpid(child, 0)
    assert (mine, os.waitstatus_to_exitcode(status)) == (0, 0)


def test_the_engine_in_a_forked_child(engine: MakeLoader) -> None:
    loader = engine()
    whole = [batch["image"].sum().item() for batch in loader]
    loader.set_epoch(0)

    def child() -> int:
        return int([batch["image"].sum().item() for batch in loader] != whole)

    assert run_forked(child) == 0
    loader.set_epoch(0)
    assert child() == 0


@pytest.mark.parametrize("asked", [1, 3])
def test_an_iterator_of_the_parent_refuses_to_work_in_a_child(
    asked: int, engine: MakeLoader
) -> None:
    for loader in (Loader(Numbers(64), 8, num_workers=2), engine()):
        batches = iter(loader)
        for _ in range(asked):
            next(batches)

        def child(batches: Any = batches) -> int:
            for _ in range(2):
                with pytest.raises(UsageError, match="another process"):
                    next(batches)
            batches.close()
            return 0

        assert run_forked(child) == 0
        assert len(list(batches)) == len(loader) - asked, "nothing was taken from the parent"


def test_forking_in_the_middle_of_a_loop(engine: MakeLoader) -> None:
    """The children run all finalizers of ours when they end. Those of multiprocessing would end the
    parent's workers: with os.fork that is so for any program that has daemon processes.
    """
    for loader in (Loader(Numbers(64), 8, num_workers=2), engine()):
        count = 0
        for count, _ in enumerate(loader, 1):
            if count in (2, 5):
                assert run_forked(_end_normally) == 0
        assert count == len(loader)


def _end_normally() -> None:
    gc.collect()
    weakref.finalize._exitfunc()  # type: ignore[attr-defined]


def test_a_batch_handed_to_a_forked_child_stays_what_it_was() -> None:
    """The child looks at its batch when the parent has long let go of its own."""
    batches = iter(Loader(Numbers(800, width=5000), 8, num_workers=1))
    held = [next(batches) for _ in range(10)]
    del held[:9]
    reading, writing = os.pipe()

    def look_later() -> int:
        os.close(writing)
        os.read(reading, 1)
        return int(not bool((held[0] == torch.arange(72, 80)[:, None]).all()))

    child = fork(look_later)
    os.close(reading)
    held.clear()
    for _ in batches:
        pass
    os.close(writing)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_another_process_with_our_sockets_does_not_slow_the_end() -> None:
    batches = iter(Loader(Numbers(640), 8, num_workers=2))
    next(batches)
    bystander = fork(lambda: time.sleep(30))
    began = time.monotonic()
    batches.close()
    took = time.monotonic() - began
    os.kill(bystander, 9)
    os.waitpid(bystander, 0)
    assert took < 3, "the workers were not told, but waited for"


def test_a_second_pool_does_not_slow_the_end_of_the_first() -> None:
    first = iter(Loader(Numbers(640), 8, num_workers=2))
    next(first)
    second = iter(Loader(Numbers(640), 8, num_workers=2))
    next(second)
    began = time.monotonic()
    first.close()
    assert time.monotonic() - began < 3
    second.close()


def test_a_packed_dataset_read_by_workers_and_by_the_engine_at_once(packed: Path) -> None:
    def pictures(samples: list[Any]) -> list[Any]:
        return [sample["image"].shape for sample in samples]

    dataset = open_dataset(packed)
    shapes = Loader(dataset, 4, num_workers=2, collate_fn=pictures)
    for some, batch in zip(shapes, engine_loader(packed), strict=True):
        assert len(some) == len(batch["image"]) == 4
