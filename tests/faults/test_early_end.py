"""Iterations that are given up: nothing stale, nothing left, however often."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstream import Loader
from tests.faults.conftest import MakeLoader
from tests.faults.datasets import Numbers, Sleeps, is_in_order
from tests.faults.leftovers import holdings


def test_break_and_again_in_the_engine(engine: MakeLoader) -> None:
    loader = engine(num_workers=1)
    for _ in range(1000):
        for _ in loader:
            break
    assert len(list(loader)) == 6


def give_up_often(times: int, **options: Any) -> None:
    loader = Loader(Numbers(64), 8, num_workers=2, **options)
    for turn in range(times):
        for number, batch in enumerate(loader):
            assert int(batch[0, 0]) == 8 * number
            if number == turn % 3:
                break
    assert is_in_order(list(loader), 64)


@pytest.mark.parametrize("persistent", [False, True])
def test_break_and_again_with_workers(persistent: bool) -> None:
    give_up_often(300 if persistent else 15, persistent_workers=persistent)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("persistent", [False, True])
def test_break_and_again_with_workers_a_thousand_times(persistent: bool) -> None:
    give_up_often(1000, persistent_workers=persistent)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("stop_at", [0, 1, 5, 7])
def test_kept_workers_give_nothing_stale_after_a_break(stop_at: int, in_order: bool) -> None:
    options = {"batch_size": 8, "shuffle": True}
    loader = Loader(
        Numbers(64), num_workers=2, persistent_workers=True, in_order=in_order, prefetch_factor=3,
        **options,
    )  # fmt: skip
    fresh = Loader(Numbers(64), **options)  # another order in every epoch
    expected = [[batch.tolist() for batch in fresh] for _ in range(4)]
    for epoch in range(4):
        seen = []
        for number, batch in enumerate(loader):
            seen.append(batch.tolist())
            assert seen[-1] in expected[epoch]
            if epoch < 3 and number == stop_at:
                break
    assert sorted(seen) == sorted(expected[3])


def test_closing_a_generator_around_a_loader(engine: MakeLoader) -> None:
    def batches(loader: Loader) -> Iterator[Any]:
        yield from loader

    for loader in (Loader(Numbers(640), 8, num_workers=2), engine()):
        before = holdings()["child processes"]
        generator = batches(loader)
        next(generator)
        generator.close()
        assert not holdings()["child processes"] - before
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("slipstream")]


def test_dropping_a_loader_ends_the_workers_it_kept() -> None:
    loader = Loader(Numbers(64), 8, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    processes = list(batches._workers)
    assert all(process.is_alive() for process in processes)
    del loader, batches
    gc.collect()
    assert not any(process.is_alive() for process in processes)


def test_a_kept_pool_is_closed_on_request_and_started_again() -> None:
    loader = Loader(Numbers(64), 8, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    first = list(batches._workers)
    loader.close()
    loader.close()
    assert not any(process.is_alive() for process in first)
    assert is_in_order(list(loader), 64)


def test_a_timeout_can_be_caught_and_everything_closed() -> None:
    loader = Loader(
        Sleeps(64, at=9, seconds=60), 8, num_workers=2, timeout=1, persistent_workers=True
    )
    batches = iter(loader)
    assert int(next(batches)[0, 0]) == 0
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after \d+ seconds"):
        next(batches)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after \d+ seconds"):
        next(batches)
    batches.close()
    loader.close()


def test_an_iterator_that_was_never_asked(engine: MakeLoader) -> None:
    for loader in (Loader(Numbers(64), 8, num_workers=2), engine()):
        iter(loader)
        batches = iter(loader)
        batches.close()
        with pytest.raises(StopIteration):
            next(batches)


def test_progress_line_of_a_loop_that_breaks(engine: MakeLoader) -> None:
    for loader in (Loader(Numbers(640), 8, num_workers=2, progress=True), engine(progress=True)):
        for _ in range(3):
            for _ in loader:
                break


@pytest.mark.parametrize("way", ["workers", "engine"])
def test_prefetched_loops_end_as_well(way: str, engine: MakeLoader, tmp_path: Path) -> None:
    """Behind a prefetcher the batches are asked for by its thread."""
    from slipstream.loader.prefetch import DevicePrefetcher
    from tests.loader.fake_lane import FakeLane

    loader = Loader(Numbers(640), 8, num_workers=2) if way == "workers" else engine()
    for _ in range(3):
        batches = DevicePrefetcher(loader, FakeLane())
        next(batches)
        batches.close()
