"""The loader with a GPU: the same batches as on the CPU, and none overwritten while in use."""

import gc
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import slipstream
from slipstream.augment import (
    Normalize,
    PILToTensor,
    RandomHorizontalFlip,
    RandomResizedCrop,
    ToTensor,
)
from tests.pictures import jpeg

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CROP = [RandomResizedCrop(64), RandomHorizontalFlip()]
FLOAT = [*CROP, ToTensor(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for number in range(50):
        (root / f"{number:02d}.jpg").write_bytes(jpeg(100 + number, 120 - number, number))
    return root


class Rows(Dataset[Any]):
    """Samples that tell their number in every element, with some random noise."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "x": torch.full((64, 1024), float(index)),
            "noise": torch.rand(8),
            "key": str(index),
        }


@pytest.mark.parametrize(
    "transform", [CROP, [*CROP, PILToTensor()], FLOAT], ids=["array", "uint8", "float"]
)
def test_pictures_are_bit_equal_to_the_cpus(folder: Path, transform: Any) -> None:
    def make(device: str | None) -> Any:
        dataset = slipstream.open_dataset(folder)
        return slipstream.Loader(dataset, 8, shuffle=True, transform=transform, device=device)

    for here, there in zip(make(None), make("cuda"), strict=True):
        assert there["image"].is_cuda and there["image"].dtype == here["image"].dtype
        assert torch.equal(here["image"], there["image"].cpu()) and here["key"] == there["key"]
        assert there["image"].stride() == here["image"].stride()


@pytest.mark.parametrize("workers", [1, 3])
def test_any_dataset_is_bit_equal_to_the_cpus(workers: int) -> None:
    def make(device: str | None) -> Any:
        return slipstream.Loader(Rows(), 16, shuffle=True, num_workers=workers, device=device)

    for here, there in zip(make(None), make("cuda"), strict=True):
        assert torch.equal(here["x"], there["x"].cpu()) and here["key"] == there["key"]
        assert torch.equal(here["noise"], there["noise"].cpu())


def test_slots_of_workers_are_page_locked() -> None:
    loader = slipstream.Loader(Rows(), 16, num_workers=1, device="cuda")
    iterator = iter(loader)
    next(iterator)
    pool = iterator._source._maker._pool
    until = time.monotonic() + 10  # the thread that fetches ahead opens slots meanwhile
    while not (locked := _are_locked(pool)) and time.monotonic() < until:
        time.sleep(0.01)
    assert locked
    iterator.close()


def _are_locked(pool: Any) -> bool:
    slots = [slot for worker in pool.workers for slot in list(worker.slots.values())]
    return bool(slots) and all(torch.from_numpy(slot.memory).is_pinned() for slot in slots)


@pytest.mark.parametrize("kind", ["workers", "engine", "rows"])
def test_batches_in_use_and_kept_ones_stay_what_they_are(folder: Path, kind: str) -> None:
    """Kernels that read a batch late, on two streams, while the loader runs ahead as far as it can;
    every fifth batch is kept to the end.
    """

    def make(device: str | None) -> Any:
        if kind == "workers":
            return slipstream.Loader(Rows(), 4, num_workers=3, device=device)
        if kind == "rows":
            rows = torch.arange(4000.0).repeat_interleave(4096).view(4000, 4096)
            return slipstream.Loader(TensorDataset(rows), 40, shuffle=True, device=device)
        dataset = slipstream.open_dataset(folder)
        return slipstream.Loader(dataset, 2, shuffle=True, transform=FLOAT, device=device)

    def first(batch: Any) -> torch.Tensor:
        if isinstance(batch, dict):
            return batch["x" if "x" in batch else "image"]
        return batch[0]

    expected = [first(batch).clone() for _ in range(3) for batch in make(None)]
    side = torch.cuda.Stream()
    kept, sums, late = [], [], []
    number = 0
    for _ in range(3):
        for batch in make("cuda"):
            value = first(batch)
            torch.cuda._sleep(1_000_000)
            sums.append(value.double().sum())
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)
                late.append(value.double().mean())
            value.record_stream(side)
            if number % 5 == 0:
                kept.append((number, value))
            number += 1
            del batch, value
    torch.cuda.synchronize()
    assert number == len(expected)
    for got, mean, want in zip(sums, late, expected, strict=True):
        assert abs(got.item() - want.double().sum().item()) < 1e-3
        assert abs(mean.item() - want.double().mean().item()) < 1e-6
    for place, value in kept:
        assert torch.equal(value.cpu(), expected[place])


def test_pin_memory_without_a_device(folder: Path) -> None:
    dataset = slipstream.open_dataset(folder)
    loaders = [
        slipstream.Loader(dataset, 8, transform=FLOAT, pin_memory=True),
        slipstream.Loader(Rows(), 16, num_workers=2, pin_memory=True),
        slipstream.Loader(TensorDataset(torch.rand(64, 3)), 8, pin_memory=True),
    ]
    for loader in loaders:
        for batch in loader:
            parts = batch.values() if isinstance(batch, dict) else batch
            assert all(t.is_pinned() for t in parts if isinstance(t, torch.Tensor))


def test_early_break_leaves_no_gpu_memory(folder: Path) -> None:
    dataset = slipstream.open_dataset(folder)
    before = None
    for number in range(60):
        for _ in slipstream.Loader(dataset, 8, transform=FLOAT, device="cuda"):
            break
        gc.collect()
        if number == 20:
            before = torch.cuda.memory_allocated()
    assert before is not None and torch.cuda.memory_allocated() <= before


def test_state_counts_what_was_delivered_not_what_was_copied_ahead(folder: Path) -> None:
    dataset = slipstream.open_dataset(folder)
    loader = slipstream.Loader(dataset, 5, shuffle=True, transform=FLOAT, device="cuda")
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    assert state["position"] == 15
    rest = [batch["image"].cpu() for batch in iterator]
    again = slipstream.Loader(dataset, 5, shuffle=True, transform=FLOAT, device="cuda")
    again.load_state_dict(state)
    for one, other in zip(rest, again, strict=True):
        assert torch.equal(one, other["image"].cpu())
