"""A worker process that ends in the middle of its work is an error that names its samples."""

import os
import signal
from pathlib import Path

import pytest

from slipstream import Loader
from tests.faults.datasets import (
    Act,
    ActsAt,
    Numbers,
    Sleeps,
    abort,
    exit_at_once,
    exit_politely,
    is_in_order,
    kill_itself,
    read_nowhere,
    terminate_itself,
    wait_for_text,
)

DIED = r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly"


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (kill_itself, "SIGKILL"),
        (terminate_itself, "SIGTERM"),
        (read_nowhere, "SIGSEGV"),
        (abort, "SIGABRT"),
        (exit_at_once, "exit code 7"),
        (exit_politely, "exit code 3"),
    ],
)
def test_death_at_a_sample_is_told_with_its_samples(
    act: Act, reason: str, persistent: bool, tmp_path: Path
) -> None:
    once = tmp_path / "once"
    once.touch()
    dataset = ActsAt(64, at=20, act=act, once=once)
    loader = Loader(dataset, 8, num_workers=2, persistent_workers=persistent)
    with pytest.raises(RuntimeError, match=DIED) as caught:
        list(loader)
    assert reason in str(caught.value)
    assert "samples [16, 17, 18, 19, 20, 21, 22, 23]" in str(caught.value)
    del caught
    assert is_in_order(list(loader), 64), "the loader can be used again"


def test_worker_killed_at_work(tmp_path: Path) -> None:
    says = tmp_path / "pid"
    batches = iter(Loader(Sleeps(64, at=17, seconds=60, says=says), 8, num_workers=2))
    next(batches)
    os.kill(int(wait_for_text(says)), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=DIED + r".*SIGKILL.*samples \[16, "):
        for _ in batches:
            pass


def test_idle_worker_killed_within_an_epoch() -> None:
    batches = iter(Loader(Numbers(800), 8, num_workers=2))
    next(batches)
    victim = batches._workers[1].pid
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid\(s\) {victim}\)"):
        for _ in batches:
            pass


def test_asked_again_after_a_death_the_iterator_says_so_again(tmp_path: Path) -> None:
    batches = iter(Loader(ActsAt(64, at=3, act=kill_itself), 8, num_workers=2))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=DIED):
            next(batches)


def test_idle_worker_killed_between_epochs_is_replaced() -> None:
    loader = Loader(Numbers(64), 8, num_workers=2, persistent_workers=True)
    first = iter(loader)
    assert is_in_order(list(first), 64)
    victim = first._workers[0]
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(20)
    assert is_in_order(list(loader), 64)


def test_interrupted_workers_between_epochs_are_replaced() -> None:
    """A notebook sends Ctrl-C to the workers, too, while the loop's own code runs."""
    loader = Loader(Numbers(64), 8, num_workers=2, persistent_workers=True)
    first = iter(loader)
    next(first)
    for process in first._workers:
        os.kill(process.pid, signal.SIGINT)
        process.join(20)
    assert is_in_order(list(loader), 64)


def test_death_of_one_worker_does_not_wait_for_another() -> None:
    """The second worker has a minute's work before it; it is ended, not waited for."""
    dataset = ActsAt(64, at=0, act=exit_at_once)
    loader = Loader(dataset, 8, num_workers=2, collate_fn=_sleep_at_eight)
    with pytest.raises(RuntimeError, match=DIED):
        list(loader)


def _sleep_at_eight(samples: list[object]) -> object:
    if int(samples[0][0]) == 8:  # type: ignore[index]
        signal.pause()
    return samples
