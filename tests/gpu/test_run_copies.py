"""`non-blocking-copies` on a real GPU: nothing is lost, and the loop does not wait."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from slipstream.doctor.capture import Capture
from slipstream.run.fix import Situation
from slipstream.run.fixes import copies

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BUSY = 200_000_000  # cycles: about 0.1 s
SHORT_S = 0.03


@pytest.fixture
def known() -> Iterator[Situation]:
    torch.zeros(1, device="cuda")
    torch.zeros(1 << 20).pin_memory()  # the first page-locked memory takes a while
    torch.cuda.synchronize()
    found = Situation({}, Capture("train.py", {}, ""))
    undo = copies.apply(found)
    yield found
    undo()
    assert found.failures == {}


def wait_s(function: Any) -> float:
    torch.cuda._sleep(BUSY)
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


@pytest.mark.parametrize("way", [lambda x: x.to("cuda"), lambda x: x.cuda(), lambda x: x.to(0)])
def test_the_loop_does_not_wait_and_its_tensor_is_its_own(known: Situation, way: Any) -> None:
    made = []
    source = torch.arange(1 << 20, dtype=torch.float32)
    expected = source.clone()

    def copy() -> None:
        made.append(way(source))
        source.zero_()  # while the device is still busy with something else

    assert wait_s(copy) < SHORT_S
    assert torch.equal(made[0].cpu(), expected)


@pytest.mark.parametrize("way", [lambda x: x.to("cuda"), lambda x: x.cuda(), lambda x: x.to(0)])
def test_what_the_device_is_about_to_write_is_sent_as_it_will_be(
    known: Situation, way: Any
) -> None:
    on_device = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY)
    back = on_device.to("cpu", non_blocking=True)
    assert back.is_pinned()
    assert torch.equal(way(back), on_device)


def test_a_page_locked_tensor_is_the_scripts_own(known: Situation) -> None:
    source = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    expected = source.clone()
    torch.cuda._sleep(BUSY)
    made = source.to("cuda")
    source.zero_()
    assert torch.equal(made.cpu(), expected)


def test_memory_is_not_used_again_too_early(known: Situation) -> None:
    torch.cuda._sleep(BUSY)
    sources = [torch.full((1 << 18,), float(number)) for number in range(40)]
    sent = [source.to("cuda") for source in sources]
    for number, tensor in enumerate(sent):
        assert bool((tensor == number).all())


def test_what_comes_back_is_there(known: Situation) -> None:
    torch.cuda._sleep(BUSY)
    device = torch.ones(1 << 20, device="cuda") * 3
    assert bool((device.to("cpu") == 3).all())


def test_a_script_with_streams_is_left_alone(known: Situation) -> None:
    stream = torch.cuda.Stream()
    source = torch.arange(1 << 20, dtype=torch.float32)
    took = wait_s(lambda: source.to("cuda"))
    assert took > SHORT_S
    assert stream is not None
    assert known.notes
