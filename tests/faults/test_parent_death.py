"""A killed parent takes its workers with it, within seconds, whatever they are at."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from slipstream import Loader
from tests.faults.conftest import engine_loader
from tests.faults.datasets import Numbers, Sleeps, fork, is_gone, wait_for, wait_for_text

WITHIN_S = 5.0
pytestmark = pytest.mark.timeout(120)


def kill_and_see_workers_go(parent: int, workers: list[int]) -> None:
    assert workers
    assert not any(map(is_gone, workers))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    # The limit is of the loader; the slack is for a machine with other work.
    wait_for(lambda: all(map(is_gone, workers)), "end of the workers", WITHIN_S)


def start_parent(make: Callable[[], Any], told: Path) -> tuple[int, list[int]]:
    """A process in the middle of a loop, and the pids of its workers."""

    def loop() -> None:
        batches = iter(make())
        next(batches)
        pids = " ".join(str(process.pid) for process in batches._workers)
        partial = told.with_suffix(".part")
        partial.write_text(pids + "\n")
        partial.rename(told)
        time.sleep(100)

    parent = fork(loop)
    return parent, [int(pid) for pid in wait_for_text(told).split()]


def test_idle_workers(tmp_path: Path) -> None:
    parent, workers = start_parent(
        lambda: Loader(Numbers(800), 8, num_workers=2), tmp_path / "pids"
    )
    kill_and_see_workers_go(parent, workers)


def test_a_worker_in_the_middle_of_a_minute(tmp_path: Path) -> None:
    says = tmp_path / "sleeps"
    parent, workers = start_parent(
        lambda: Loader(Sleeps(800, at=17, seconds=60, says=says), 8, num_workers=2),
        tmp_path / "pids",
    )
    assert int(wait_for_text(says)) in workers
    kill_and_see_workers_go(parent, workers)


def test_sockets_held_open_by_another_process(tmp_path: Path) -> None:
    """A child of the loop has inherited all sockets, so that nobody sees them close."""
    told = tmp_path / "pids"
    bystander_told = tmp_path / "bystander"

    def loop() -> None:
        batches = iter(Loader(Numbers(800), 8, num_workers=2))
        next(batches)
        bystander_told.write_text(f"{fork(lambda: time.sleep(60))}\n")
        told.write_text(" ".join(str(process.pid) for process in batches._workers) + "\n")
        time.sleep(100)

    parent = fork(loop)
    workers = [int(pid) for pid in wait_for_text(told).split()]
    bystander = int(wait_for_text(bystander_told))
    try:
        kill_and_see_workers_go(parent, workers)
        assert not is_gone(bystander)
    finally:
        os.kill(bystander, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_started_otherwise(method: str, tmp_path: Path) -> None:
    says = tmp_path / "sleeps"
    dataset = Sleeps(800, at=9, seconds=60, says=says)
    parent, workers = start_parent(
        lambda: Loader(dataset, 8, num_workers=1, multiprocessing_context=method),
        tmp_path / "pids",
    )
    wait_for_text(says)
    helpers = [child.pid for child in psutil.Process(parent).children(recursive=True)]
    kill_and_see_workers_go(parent, workers)
    wait_for(lambda: all(map(is_gone, helpers)), "end of the standard library's helpers")


def test_a_parent_that_runs_the_engine(packed: Path, tmp_path: Path) -> None:
    """Its threads are its own: nothing is left that could stay."""
    told = tmp_path / "started"

    def loop() -> None:
        batches = iter(engine_loader(packed))
        next(batches)
        told.write_text("yes")
        time.sleep(100)

    parent = fork(loop)
    wait_for_text(told)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert is_gone(parent)
