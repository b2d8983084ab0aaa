"""Batches stacked into memory of ours are what torch stacks by itself."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from slipstream.loader.collating import SlotCollate, collate_here


class Marked(torch.Tensor):
    """A subclass."""


def described(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        values = None if batch.is_meta else batch.tolist()
        about = batch.dtype, batch.shape, batch.stride(), batch.device.type, batch.requires_grad
        return type(batch), *about, values
    return [described(part) for part in batch]


def video() -> torch.Tensor:
    return torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)


SAMPLES: list[tuple[str, list[Any]]] = [
    ("plain", [torch.rand(2, 3), torch.rand(2, 3)]),
    ("wider later", [torch.rand(2), torch.rand(2).double()]),
    ("wider first", [torch.rand(2).double(), torch.rand(2)]),
    ("integers first", [torch.ones(2, dtype=torch.int64), torch.rand(2)]),
    ("gradients", [torch.rand(2), torch.rand(2, requires_grad=True)]),
    ("a device", [torch.rand(2, device="meta"), torch.rand(2, device="meta")]),
    ("a subclass later", [torch.rand(2), torch.rand(2).as_subclass(Marked)]),
    ("channels last", [torch.rand(4, 5, 3).permute(2, 0, 1) for _ in range(2)]),
    ("videos", [video(), video()]),
]


@pytest.mark.parametrize("samples", [s for _, s in SAMPLES], ids=[name for name, _ in SAMPLES])
@pytest.mark.parametrize("has_slot", [False, True])
def test_tensors_are_stacked_as_torch_stacks_them(samples: list[Any], has_slot: bool) -> None:
    slot = np.zeros(1 << 12, dtype=np.uint8) if has_slot else None
    assert described(SlotCollate(slot).collate(samples)) == described(default_collate(samples))


def test_numbers_are_made_where_torch_makes_them() -> None:
    samples = [(1, 2.0, np.float32(3)), (4, 5.0, np.float32(6))]
    with torch.device("meta"):
        expected = described(default_collate(samples))
        assert described(collate_here(samples)) == expected
        assert described(SlotCollate(None).collate(samples)) == expected
    assert described(collate_here(samples)) == described(default_collate(samples))


def test_plain_tensors_lie_in_the_slot() -> None:
    slot = np.zeros(1 << 12, dtype=np.uint8)
    batch = SlotCollate(slot).collate([torch.rand(3, 4), torch.rand(3, 4)])
    assert 0 <= batch.data_ptr() - slot.ctypes.data < slot.nbytes
