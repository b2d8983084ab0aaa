"""`device-prefetch` on a real GPU: the same values, copied while the device computes."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from slipstream.doctor.capture import Capture
from slipstream.run.fix import Situation
from slipstream.run.fixes import device_prefetch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BUSY = 200_000_000  # cycles: about 0.1 s
ROWS = 1 << 20


@pytest.fixture
def known() -> Iterator[Situation]:
    torch.zeros(1, device="cuda")
    torch.zeros(1 << 20).pin_memory()
    torch.cuda.synchronize()
    found = Situation({}, Capture("train.py", {}, ""))
    undo = device_prefetch.apply(found)
    yield found
    undo()
    assert found.failures == {}


def loader(*, pin: bool, count: int = 6) -> DataLoader[Any]:
    data = TensorDataset(torch.arange(count * ROWS, dtype=torch.float32).view(count, ROWS))
    return DataLoader(data, batch_size=2, pin_memory=pin)


def record(event: Any) -> None:
    """Not as an event of the script: that would have passed after a copy that waits."""
    torch._C._CudaEventBase.record(event, torch.cuda.current_stream())


WAYS = [
    lambda x: x.to("cuda"), lambda x: x.cuda(), lambda x: x.to(0), lambda x: x.cuda(0),
    lambda x: x.to("cuda", non_blocking=True), lambda x: x.cuda(non_blocking=True),
]  # fmt: skip


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_values_are_the_same_while_the_device_is_busy(
    known: Situation, way: Any, pin: bool
) -> None:
    found = []
    for (x,) in loader(pin=pin):
        torch.cuda._sleep(BUSY // 10)
        found.append(way(x) * 2)
    expected = torch.arange(6 * ROWS, dtype=torch.float32) * 2
    assert torch.equal(torch.cat(found).cpu().view(-1), expected)
    assert known.notes["device-prefetch"] == ["batches are copied on a stream of their own"]


@pytest.mark.parametrize("pin", [False, True])
def test_the_copy_is_done_before_the_device_has_computed(known: Situation, pin: bool) -> None:
    data = TensorDataset(torch.rand(32, ROWS))  # 128 MB: more than 2 ms on any bus
    batches = DataLoader(data, batch_size=32, pin_memory=pin)
    (warm,) = next(iter(batches))
    warm.to("cuda")  # memory and streams are there now
    (x,) = next(iter(batches))
    torch.cuda.synchronize()
    busy, copied = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(10 * BUSY)
    record(busy)
    made = x.to("cuda")
    record(copied)
    assert not busy.query(), "the device was not busy for long enough"
    torch.cuda.synchronize()
    assert busy.elapsed_time(copied) < 0.5
    assert torch.equal(made.cpu(), x)


def test_what_is_computed_waits_for_the_copy(known: Situation) -> None:
    for seed in range(4):
        torch.manual_seed(seed)
        data = TensorDataset(torch.rand(32, ROWS))
        (x,) = next(iter(DataLoader(data, batch_size=32, pin_memory=True)))
        torch.cuda.synchronize()  # nothing delays what comes next
        doubled = x.to("cuda", non_blocking=True) * 2
        assert torch.equal(doubled.cpu(), x * 2)


def test_a_batch_may_be_overwritten_once_it_was_copied(known: Situation) -> None:
    for pin in (False, True):
        (x,) = next(iter(loader(pin=pin)))
        expected = x.clone()
        torch.cuda._sleep(BUSY)
        made = x.to("cuda")
        x.zero_()
        assert torch.equal(made.cpu(), expected)


def test_memory_is_used_again_and_never_too_soon(known: Situation) -> None:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()  # by other tests
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    expected = 0.0
    for _ in range(5):
        for (x,) in loader(pin=True):
            expected += x.double().sum().item()
            on_device = x.to("cuda", non_blocking=True)
            torch.cuda._sleep(BUSY // 50)
            total += on_device.double().sum()
            del on_device
    assert total.item() == pytest.approx(expected, rel=1e-9)
    assert torch.cuda.max_memory_reserved() - before < 16 * 8 * ROWS


def test_other_tensors_and_streams_are_left_alone(known: Situation) -> None:
    assert torch.zeros(1 << 20).to("cuda").sum().item() == 0
    (x,) = next(iter(loader(pin=True)))
    with torch.cuda.stream(torch.cuda.Stream()):
        made = x.to("cuda")
    torch.cuda.synchronize()
    assert torch.equal(made.cpu(), x)
    assert known.notes.get("device-prefetch") in (
        None, ["off, as the script has streams of its own"],
    )  # fmt: skip
