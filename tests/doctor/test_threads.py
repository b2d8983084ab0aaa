"""The loop is watched in whichever thread it runs, and ended there."""

import _thread
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from slipstream.doctor.diagnose import Diagnosis, diagnose
from slipstream.doctor.record.session import Session
from slipstream.launch import WindowEnded

_STEPS = 20


class Loop:
    """Trains for ever, or for some epochs of twelve batches."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.steps = 0

    def loader(self) -> Any:
        return DataLoader(torch.randn(96, 4), 8)  # type: ignore[arg-type]

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.model(batch).sum().backward()
        self.optimizer.step()
        self.steps += 1

    def run(self, epochs: int = 1_000_000) -> None:
        for _ in range(epochs):
            for batch in self.loader():
                self.step(batch)


def found_in(function: Callable[[], object]) -> Diagnosis:
    found: Any = diagnose(function, steps=_STEPS)
    assert isinstance(found, Diagnosis)
    return found


def is_watched(found: Diagnosis) -> bool:
    parts = found.report["parts"]
    return (
        found.capture.ended == "window"
        and found.report["steps"]["count"] > _STEPS / 2
        and {"loading", "forward", "backward", "optimizer"} <= set(parts)
    )


# Errors in threads are warnings of pytest's, and so failures: the window's end is none.
def test_a_thread_that_is_joined(capfd: pytest.CaptureFixture[str]) -> None:
    after = []

    def train() -> None:
        thread = threading.Thread(target=Loop().run)
        thread.start()
        thread.join()
        after.append("goes on")

    assert is_watched(found_in(train))
    assert after == ["goes on"]
    assert capfd.readouterr().err == ""


def test_the_lines_are_those_of_the_thread() -> None:
    class Slow:
        def __len__(self) -> int:
            return 800

        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(0.002)
            return torch.ones(4)

    loop = Loop()
    loop.loader = lambda: DataLoader(Slow(), 8)  # type: ignore[method-assign,arg-type]

    def train() -> None:
        thread = threading.Thread(target=loop.run)
        thread.start()
        thread.join()

    found = found_in(train)
    assert {line.function for line in found.capture.lines} & {"__getitem__", "run"}
    [process] = [p for p in found.capture.processes if p.batch_count]
    assert process.stages["dataset"].count >= 8 * _STEPS


def test_a_pool() -> None:
    def train() -> None:
        with ThreadPoolExecutor() as pool:
            pool.submit(Loop().run).result()

    assert is_watched(found_in(train))


def test_the_thread_that_steps_is_the_loops_not_the_one_that_reads() -> None:
    loop = Loop()
    batches: queue.Queue[Any] = queue.Queue(2)
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for batch in loop.loader():
                batches.put(batch)

    def train() -> None:
        threading.Thread(target=read, daemon=True).start()
        while True:
            loop.step(batches.get())

    found = found_in(train)
    is_over.set()
    assert found.capture.ended == "window"
    assert found.report["steps"]["count"] > _STEPS / 2
    assert {"forward", "backward", "optimizer"} <= set(found.report["parts"])
    assert "loading" not in found.report["parts"]


def test_a_second_thread_that_steps_does_not_take_over() -> None:
    loop, beside, is_over = Loop(), Loop(), threading.Event()

    def step() -> None:
        while not loop.steps:
            time.sleep(0.001)
        while not is_over.is_set():
            beside.step(torch.ones(8, 4))

    def train() -> None:
        thread = threading.Thread(target=step)
        thread.start()
        try:
            loop.run()
        finally:
            is_over.set()
            thread.join()

    found = found_in(train)
    assert is_watched(found)
    assert len(found.capture.optimizers) == 1


def test_threads_that_python_did_not_start_are_not_followed() -> None:
    """Autograd's own may step in a backward pass."""
    session = Session("foreign", steps=None, seconds=None)
    session.start()
    loop, is_over = Loop(), threading.Event()
    try:
        _thread.start_new_thread(lambda: (loop.step(torch.ones(8, 4)), is_over.set()), ())
        assert is_over.wait(30)
        assert session.trace.is_loops_thread
    finally:
        session.stop("error")


def test_behind_the_window_every_thread_is_ended() -> None:
    reached = []

    def train() -> None:
        thread = threading.Thread(target=Loop().run)
        thread.start()
        thread.join()
        with pytest.raises(WindowEnded):
            iter(Loop().loader())
        with pytest.raises(WindowEnded):
            Loop().step(torch.ones(8, 4))
        reached.append("both")

    assert is_watched(found_in(train))
    assert reached == ["both"]


def test_errors_of_threads_are_told_as_ever() -> None:
    told: list[Any] = []

    def fail() -> None:
        raise KeyError("mine")

    def train() -> None:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()

    before, threading.excepthook = threading.excepthook, told.append
    try:
        found_in(train)
    finally:
        threading.excepthook = before
    assert [args.exc_type for args in told] == [KeyError]
