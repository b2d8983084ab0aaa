"""What a script has not waited for is there where it would have waited, on a real GPU."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from slipstream.doctor.capture import Capture
from slipstream.run.deferred.value import Deferred, deferred
from slipstream.run.fix import Situation
from slipstream.run.fixes import copies, deferred_values, device_prefetch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BUSY = 200_000_000  # cycles: about 0.1 s
SIZE = 1 << 20
BATCH = torch.zeros(SIZE)


@pytest.fixture(autouse=True)
def known() -> Iterator[Situation]:
    torch.zeros(1, device="cuda")
    torch.zeros(SIZE).pin_memory()
    torch.cuda.synchronize()
    found = Situation({}, Capture("train.py", {}, ""))
    undo = [fix.apply(found) for fix in (copies, deferred_values)]
    yield found
    for take_away in reversed(undo):
        take_away()
    assert found.failures == {}


def defer() -> Any:
    value = deferred(torch.ones((), device="cuda"))
    assert type(value) is Deferred
    return value


WAITS: list[Callable[[], Any]] = [defer, lambda: BATCH.to("cuda")]
BACK: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.to("cpu", non_blocking=True),
    lambda x: torch.empty(SIZE, pin_memory=True).copy_(x, non_blocking=True),
    lambda x: torch.empty(SIZE, pin_memory=True).copy_(x, True),
]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("back", BACK)
def test_what_comes_back_is_there(wait: Any, back: Any) -> None:
    found = torch.ones(SIZE, device="cuda")
    torch.cuda._sleep(BUSY)
    host = back(found * 3)
    wait()
    assert bool((host == 3).all())


@pytest.mark.parametrize("wait", WAITS)
def test_a_buffer_may_be_filled_again(wait: Any) -> None:
    buffer = torch.ones(SIZE).pin_memory()
    torch.cuda._sleep(BUSY)
    sent = buffer.to("cuda", non_blocking=True)
    wait()
    buffer.zero_()
    assert bool((sent == 1).all())


def test_a_batch_may_be_changed_that_was_sent_ahead(known: Situation) -> None:
    undo = device_prefetch.apply(known)
    data = TensorDataset(torch.ones(2, 64 * SIZE))
    for (batch,) in DataLoader(data, batch_size=1, pin_memory=True):
        sent = batch.to("cuda", non_blocking=True)
        defer()
        batch.zero_()
        assert bool((sent == 1).all())
    assert "stream of their own" in known.notes["device-prefetch"][0]
    undo()


@pytest.mark.parametrize("wait", WAITS)
def test_events_of_the_script_have_passed(wait: Any) -> None:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(BUSY)
    end.record()
    wait()
    assert end.query()
    assert begin.elapsed_time(end) > 10


@pytest.mark.parametrize("wait", WAITS)
def test_what_comes_after_is_not_waited_for(wait: Any) -> None:
    torch.ones(SIZE).pin_memory().to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY)
    began = time.perf_counter()
    wait()
    assert time.perf_counter() - began < 0.03


def test_copies_in_a_graph_of_the_script() -> None:
    source, host = torch.zeros(SIZE, device="cuda"), torch.zeros(SIZE, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        host.copy_(source + 1, non_blocking=True)
    torch.cuda._sleep(BUSY)
    graph.replay()
    defer()
    assert bool((host == 1).all())
