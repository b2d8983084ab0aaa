"""`uint8-bus` on a real GPU: batches arrive as bytes, with the values of the processor."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from slipstream.doctor.capture import Capture
from slipstream.run.apply import apply_all
from slipstream.run.fix import Situation
from slipstream.run.pictures import pixel_batch
from slipstream.run.pictures.late_batch import is_late_batch, late_batch, values_of
from tests.augment.standins import v1
from tests.pictures import jpeg
from tests.run.test_pictures_batches import PIPELINES, Folder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = "cuda"
BUSY = 200_000_000  # cycles: about 0.1 s
NAMES = ("native-pictures", "fast-loader", "uint8-bus")
COPIES = ("non-blocking-copies", "device-prefetch")


@pytest.fixture(autouse=True)
def torchvisions_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("torchvision.transforms.transforms")
    fake.Compose = v1.Compose  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr(pixel_batch, "_LEAST_BYTES", 1)


@pytest.fixture(params=[NAMES, (*NAMES[:2], *COPIES, NAMES[2])], ids=["alone", "with copies"])
def known(request: pytest.FixtureRequest) -> Iterator[Situation]:
    torch.zeros(1, device=DEVICE)
    found = Situation({"findings": []}, Capture("train.py", {}, "", clock="device"))
    undo = apply_all(request.param, found)
    yield found
    while undo:
        undo.popitem()[1]()
    assert found.failures == {}


def a_batch(count: int = 8, side: int = 64) -> torch.Tensor:
    torch.manual_seed(count)
    pixels = torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8)
    return late_batch(pixels, (torch.arange(768.0).reshape(3, 256) / 255 - 0.4) / 0.3)


WAYS: dict[str, Any] = {
    "to": lambda x: x.to(DEVICE),
    "cuda": lambda x: x.cuda(),
    "number": lambda x: x.to(0),
    "cuda number": lambda x: x.cuda(0, non_blocking=True),
    "not waiting": lambda x: x.to(DEVICE, non_blocking=True),
    "half": lambda x: x.to(DEVICE, torch.float16),
    "channels last": lambda x: x.to(DEVICE, memory_format=torch.channels_last),
    "pinned": lambda x: x.pin_memory().to(DEVICE, non_blocking=True),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_values_are_those_of_the_processor(known: Situation, way: Any) -> None:
    batch = a_batch()
    expected = way(values_of(batch))
    found = way(batch)
    assert type(found) is torch.Tensor and found.device == expected.device
    assert found.dtype is expected.dtype and found.stride() == expected.stride()
    assert torch.equal(found, expected) and torch.allclose(found, expected)
    assert known.notes["uint8-bus"] == ["batches go to the device as bytes"]


@pytest.mark.parametrize("pin", [False, True])
def test_a_busy_device_gets_the_right_bytes(known: Situation, pin: bool) -> None:
    """Their memory is used again as soon as it was copied."""
    found, expected = [], []
    for number in range(1, 9):
        batch = a_batch(number, 256)
        expected.append(values_of(batch))
        if pin:
            batch = batch.pin_memory()
        torch.cuda._sleep(BUSY // 10)
        found.append(batch.to(DEVICE, non_blocking=pin) * 2)
        del batch
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.cpu(), other * 2)


def test_only_a_quarter_is_copied(known: Situation) -> None:
    batch = a_batch(64, 128)
    batch.to(DEVICE)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        batch.to(DEVICE)
        torch.cuda.synchronize()
    seconds = [
        event.device_time
        for event in profile.events()
        if "Memcpy HtoD" in event.name
    ]  # fmt: skip
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        values_of(batch).to(DEVICE)
        torch.cuda.synchronize()
    usual = [event.device_time for event in profile.events() if "Memcpy HtoD" in event.name]
    assert seconds and usual and sum(seconds) < 0.7 * sum(usual)


def batches(folder: Any, *, pin: bool) -> Any:
    torch.manual_seed(3)
    return DataLoader(folder, 8, shuffle=True, num_workers=2, pin_memory=pin)


@pytest.mark.parametrize("pin", [False, True])
def test_batches_of_workers(known: Situation, pin: bool) -> None:
    folder = Folder([jpeg(64, 64, k) for k in range(48)], PIPELINES["train"]())
    found, was_late = [], []
    for x, y in batches(folder, pin=pin):
        was_late.append(is_late_batch(x))
        assert not pin or x.is_pinned()
        found.append((x.to(DEVICE, non_blocking=True), y))
    assert all(was_late)
    late = [(x.cpu(), y) for x, y in found]
    again = [(x + 0, y) for x, y in batches(folder, pin=pin)]
    for (x, y), (a, b) in zip(late, again, strict=True):
        assert torch.equal(x, a) and torch.equal(y, b)


def test_a_loop_on_a_stream_of_its_own(known: Situation) -> None:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    batch = a_batch(16, 128)
    with torch.cuda.stream(stream):
        found = batch.to(DEVICE, non_blocking=True) * 2
    stream.synchronize()
    assert torch.equal(found.cpu(), values_of(batch) * 2)
