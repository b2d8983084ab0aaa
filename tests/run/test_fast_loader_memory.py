"""What the loop keeps of workers' batches keeps no more memory than it has to."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from slipstream.loader.parcel import place, unwrap, wrap
from slipstream.run.fix import Situation
from slipstream.run.fixes import fast_loader
from slipstream.run.loading import depth

COUNT, WORKERS, PREFETCH = 80, 2, 2
MOST_SLOTS = WORKERS * (PREFETCH + 4)


class Labelled(Dataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.full((300, 300), float(index)), index, np.full(3, index)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataLoader[Any]]:
    monkeypatch.setattr(depth, "MOST", PREFETCH)  # a slow machine would have more made ahead
    undo = fast_loader.apply(Situation({}, SimpleNamespace(loaders=[], clock="host", calls=[])))
    yield DataLoader(Labelled(), 2, num_workers=WORKERS, prefetch_factor=PREFETCH)
    undo()


def mapped() -> int:
    """Slots of workers that this process can see."""
    return Path("/proc/self/maps").read_text().count("memfd:slipstream")


def test_labels_that_are_kept_keep_no_pictures(loader: DataLoader[Any]) -> None:
    labels, places = [], set()
    before = mapped()
    for x, y, z in loader:
        assert x[:, 0, 0].tolist() == y.tolist() == z[:, 0].tolist()
        labels.append((y, z))
        places.add(x.data_ptr())
        assert mapped() - before <= MOST_SLOTS
    # With a slot for each label it were forty.
    assert len(places) <= MOST_SLOTS
    assert [int(k) for y, _ in labels for k in y] == list(range(COUNT))
    assert [int(k) for _, z in labels for k in z[:, 2]] == list(range(COUNT))


def test_batches_that_are_kept_go_torchs_way_in_the_end(loader: DataLoader[Any]) -> None:
    before = mapped()
    batches = list(loader)
    assert mapped() - before <= MOST_SLOTS
    found = [k for x, _, _ in batches for k in x.mean((1, 2)).tolist()]
    assert found == list(range(COUNT))


def unwrapped(leaves: list[Any], **options: Any) -> tuple[list[Any], list[bool]]:
    """What comes out, and whether it lies in the slot."""
    parcel = wrap(leaves)
    slot = np.zeros(parcel.nbytes, dtype=np.uint8)
    found = unwrap(parcel.skeleton, place(parcel.leaves, slot), slot, **options)
    start = slot.ctypes.data
    ats = [f.data_ptr() if isinstance(f, torch.Tensor) else f.ctypes.data for f in found]
    return found, [start <= at < start + slot.nbytes for at in ats]


def test_small_parts_are_copied_out_of_a_slot() -> None:
    picture = torch.rand(4, 3, 50, 50).to(memory_format=torch.channels_last)
    small = torch.rand(5, 4).t()
    leaves = [picture, torch.arange(4), np.arange(6).reshape(2, 3), small]
    found, inside = unwrapped(leaves)
    assert inside == [True, False, False, False]
    assert all(bool((a == b).all()) for a, b in zip(found, leaves, strict=True))
    assert found[3].stride() == small.stride()
    assert unwrapped(leaves, copies_small=False)[1] == [True] * 4


def test_many_small_parts_that_make_up_the_batch_stay() -> None:
    assert unwrapped([torch.rand(100, 10) for _ in range(40)])[1] == [True] * 40
