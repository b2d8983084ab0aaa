"""Pipelines that end in Python: their samples draw what they draw in the engine."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset

import slipstream
from slipstream.augment import RandomHorizontalFlip, RandomResizedCrop, ToTensor
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.loader.damage import damage
from tests.pictures import jpeg

COUNT = 23
BAD = 2
BATCHES = [[3, 3, 5, 3], [3, BAD, 3, BAD], [5, BAD, 4, 3]]
CROP = [RandomResizedCrop(32), RandomHorizontalFlip(), ToTensor()]
FLIP = [RandomHorizontalFlip(), ToTensor()]  # the engine does not know of one size for all


def unknown_tail(picture: torch.Tensor) -> torch.Tensor:
    return picture


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(COUNT):
        (folder / f"{number:02d}.jpg").write_bytes(jpeg(60, 50, number))
    path = tmp_path_factory.mktemp("packed") / "photos.slip"
    pack_source(open_source(folder), path)
    return path


@pytest.fixture
def damaged(tmp_path: Path, whole: Path) -> Path:
    import shutil

    path = tmp_path / "damaged.slip"
    shutil.copytree(whole, path)
    damage(path, "image", [BAD], byte=60)
    return path


def pictures(loader: Any) -> list[torch.Tensor]:
    return [batch["image"].clone() for batch in loader]


def different(batch: torch.Tensor) -> int:
    return len({picture.numpy().tobytes() for picture in batch})


def as_in_the_engine(path: Path, transform: list[Any], **arguments: Any) -> list[torch.Tensor]:
    """Pictures of all batches, the same in the engine and with a tail that runs in Python."""
    dataset = slipstream.open_dataset(path)
    native = slipstream.Loader(dataset, transform=transform, **arguments)
    assert "native engine" in str(native)
    expected = pictures(native)
    for workers in (0, 2):
        loader = slipstream.Loader(
            dataset, transform=[*transform, unknown_tail], num_workers=workers, **arguments
        )
        assert "as given: unknown_tail" in str(loader)
        got = pictures(loader)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    return expected


@pytest.mark.parametrize("on_error", ["raise", "skip", "substitute"])
def test_a_sample_twice_in_a_batch_is_cropped_twice(whole: Path, on_error: str) -> None:
    batches = as_in_the_engine(whole, CROP, batch_sampler=BATCHES, on_error=on_error)
    assert [different(batch) for batch in batches] == [4, 4, 4]


def test_a_sample_twice_in_a_batch_is_flipped_twice(whole: Path) -> None:
    batches = as_in_the_engine(whole, FLIP, batch_sampler=[[3] * 16, [7] * 16])
    assert [different(batch) for batch in batches] == [2, 2]


@pytest.mark.parametrize(("on_error", "left"), [("skip", [4, 2, 3]), ("substitute", [4, 4, 4])])
def test_bad_samples_do_not_shift_the_places_of_others(
    damaged: Path, on_error: str, left: list[int]
) -> None:
    batches = as_in_the_engine(damaged, CROP, batch_sampler=BATCHES, on_error=on_error)
    assert [different(batch) for batch in batches] == [len(batch) for batch in batches] == left


def first_pictures(samples: list[Any]) -> dict[str, torch.Tensor]:
    return {"image": torch.stack([sample["image"] for sample in samples])}


@pytest.mark.parametrize("collate_fn", [None, first_pictures])
def test_datasets_put_together_count_places_together(whole: Path, collate_fn: Any) -> None:
    one, other = (
        slipstream.Loader(slipstream.open_dataset(whole), transform=[*CROP, unknown_tail]).dataset
        for _ in range(2)
    )
    found = []
    for workers in (0, 2):
        loader = slipstream.Loader(
            ConcatDataset([one, other]), batch_sampler=[[3, 3 + COUNT, 3, 3 + COUNT]],
            collate_fn=collate_fn, num_workers=workers,
        )  # fmt: skip
        found.append(pictures(loader)[0])
    assert torch.equal(*found) and different(found[0]) == 4


def test_after_a_loop_a_sample_is_its_own_again(whole: Path) -> None:
    loader = slipstream.Loader(
        slipstream.open_dataset(whole), transform=[*CROP, unknown_tail], batch_sampler=BATCHES
    )
    before = loader.dataset[3]["image"]
    list(loader)
    assert torch.equal(loader.dataset[3]["image"], before)
