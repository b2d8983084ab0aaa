"""What the CUDA lane does with the leaves of a batch, with the "meta" device for a GPU."""

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from slipstream.loader.cuda_lane import _Load
from slipstream.loader.structure import map_tensors

META = torch.device("meta")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> _Load:
    """Page-locked memory needs a GPU: ordinary memory stands for it."""
    empty_like = torch.empty_like

    def ordinary(tensor: torch.Tensor, *, pin_memory: bool, **options: Any) -> torch.Tensor:
        assert pin_memory
        return empty_like(tensor, **options)

    monkeypatch.setattr(torch, "empty_like", ordinary)
    return _Load(META)


def move(load: _Load, batch: Any) -> Any:
    return map_tensors(batch, load.add_tensor, load.add_object)


IMAGE = torch.rand(2, 3, 4, 5)


@pytest.mark.parametrize(
    "tensor",
    [
        IMAGE,
        IMAGE.to(memory_format=torch.channels_last),
        IMAGE[:, ::2, 1:],
        IMAGE.permute(3, 0, 1, 2),
        torch.rand(1, 3).expand(4, 3),
        torch.rand(5) > 0.5,
        torch.tensor(7),
        torch.rand(5, dtype=torch.complex64).conj(),
        torch.rand(4).bfloat16(),
        torch.nn.Parameter(torch.rand(3)),
    ],
)
def test_pinning_keeps_values_and_the_order_of_strides(load: _Load, tensor: torch.Tensor) -> None:
    pinned = load._pin(tensor)
    assert pinned is not tensor and not pinned.requires_grad
    assert torch.equal(pinned, tensor.detach())
    assert pinned.stride() == tensor.detach().clone().stride()
    assert move(load, tensor).stride() == pinned.stride()
    assert load.hosts == [], "the host tensor is free as soon as it is in page-locked memory"
    assert load.sent.copied_bytes == load.sent.nbytes == tensor.numel() * tensor.element_size()


def test_tensors_that_are_copied_from_where_they_are_must_live(load: _Load) -> None:
    load._pin = lambda tensor: tensor  # type: ignore[method-assign]
    out = move(load, {"x": IMAGE, "again": [IMAGE], "y": "text"})
    assert out["x"] is out["again"][0] and out["x"].device == META
    assert len(load.hosts) == 1 and load.hosts[0] is IMAGE
    assert load.sent.recorded == [out["x"]] and load.sent.nbytes == IMAGE.nbytes


def test_grad_empty_and_tensors_that_are_there(load: _Load) -> None:
    there = torch.ones(3, device=META)
    out = move(load, [torch.ones(2, requires_grad=True), torch.zeros(0, 3), there])
    assert out[0].requires_grad and out[0].is_leaf
    assert out[1].shape == (0, 3) and out[1].device == META
    assert out[2] is there and any(tensor is there for tensor in load.sent.recorded)


def test_what_cannot_be_recorded_is_left_to_the_receiver(load: _Load) -> None:
    class Hidden:
        def __init__(self) -> None:
            self.x = lambda: IMAGE

        def pin_memory(self) -> "Hidden":
            raise AssertionError

        def to(self, device: torch.device) -> str:
            return f"moved to {device}"

    sparse, hidden = torch.eye(3).to_sparse(), Hidden()
    out = move(load, [sparse, hidden])
    assert out[0] is sparse and out[1] is hidden and load.sent.has_late
    assert load.sent.recorded == []


def test_objects_move_themselves_and_their_tensors_are_found(load: _Load) -> None:
    class Data:
        def __init__(self) -> None:
            self.x = IMAGE
            self.pinned = 0

        def pin_memory(self) -> "Data":
            self.pinned += 1
            return self

        def to(self, device: torch.device, non_blocking: bool = False) -> "Data":
            assert non_blocking
            self.x = self.x.to(device)
            return self

    out = move(load, Data())
    assert out.pinned == 1 and out.x.device == META
    assert load.hosts[0] is IMAGE, "kept although the object dropped it"
    assert load.sent.recorded == [out.x] and load.sent.copied_bytes == IMAGE.nbytes


def test_a_packed_sequence_keeps_its_sizes_on_the_host(
    load: _Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
    out = move(load, packed)
    assert out.data.device == META and out.batch_sizes.device.type == "cpu"
    assert load.sent.recorded == [out.data]
