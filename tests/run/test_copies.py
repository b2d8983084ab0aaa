"""`non-blocking-copies`: which copies are taken; what they do is tried on a GPU."""

from typing import Any

import pytest
import torch

from slipstream.doctor.capture import Call
from slipstream.run.fix import Situation
from slipstream.run.fixes import copies
from tests.run.loop_kit import situation

CUDA = torch.device("cuda", 0)
BATCH = torch.zeros(64, 64)


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (("cuda",), {}, torch.device("cuda")),
        (("cuda:1",), {}, torch.device("cuda:1")),
        ((CUDA,), {}, CUDA),
        ((0,), {}, CUDA),
        ((), {"device": CUDA}, CUDA),
        ((CUDA,), {"non_blocking": False}, CUDA),
        ((CUDA,), {"non_blocking": True}, None),
        ((CUDA, torch.float16), {}, None),
        ((CUDA,), {"dtype": torch.float16}, None),
        ((CUDA,), {"memory_format": torch.channels_last}, None),
        ((torch.float64,), {}, None),
        (("cpu",), {}, None),
        ((BATCH,), {}, None),
    ],
)
def test_copies_that_ask_for_a_device_alone(args: Any, kwargs: Any, expected: Any) -> None:
    assert copies.target_of(args, kwargs) == expected


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (BATCH, True),
        (torch.zeros(4), False),  # small
        (torch.zeros(64, 128)[:, ::2], False),
        (torch.nn.Parameter(torch.zeros(64, 64)), False),
        (torch.zeros(64, 64, requires_grad=True), False),
        (torch.zeros(64, 64).to_sparse(), False),
        ([1, 2], False),
    ],
)
def test_plain_tensors_alone(tensor: Any, expected: bool) -> None:
    assert copies.can_be_staged(tensor) is expected


def test_copies_on_the_processor_stay_as_they_are() -> None:
    undo = copies.apply(situation())
    assert BATCH.to("cpu") is BATCH
    assert BATCH.to(torch.float64).dtype == torch.float64
    undo()


@pytest.mark.parametrize("is_pinned", [False, True])
def test_page_locked_memory_is_left_alone(monkeypatch: pytest.MonkeyPatch, is_pinned: bool) -> None:
    """The device may be about to write to it."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: 0)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: is_pinned)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch, "empty_like", lambda tensor, **options: tensor.clone())
    known, sent = situation(), []

    def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append((args, kwargs))
        return tensor

    monkeypatch.setattr(copies, "to_device", to)
    copies._Copies(known).wrap_to(to)(BATCH, "cuda")
    asked = {} if is_pinned else {"non_blocking": True}
    assert [kwargs for _, kwargs in sent] == [asked]
    assert not known.failures


def recorded(clock: str, blocking: int, pageable: int = 40) -> Situation:
    found = situation(clock=clock)
    facts = {"bytes": 1 << 20, "blocking": blocking, "pageable": pageable}
    found.capture.calls.append(Call(0, "Tensor.to", "train.py:3", 40, facts=facts))
    return found


def test_it_applies_where_the_loop_waits_for_a_device() -> None:
    assert copies.applies(recorded("device", 40))[0]
    assert not copies.applies(recorded("device", 0))[0]
    assert not copies.applies(recorded("host", 40))[0]
    assert not copies.applies(recorded("device", 40, pageable=0))[0]
