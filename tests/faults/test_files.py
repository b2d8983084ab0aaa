"""Files that go away or get shorter while they are read."""

import os
import shutil
from pathlib import Path

import pytest

import slipstream
from slipstream import Loader
from slipstream.errors import CorruptDataset
from tests.augment.standins import v1
from tests.faults.conftest import engine_loader


@pytest.fixture
def own_copy(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "own.slip"))


def test_a_deleted_shard_stays_readable_while_it_is_open(own_copy: Path) -> None:
    whole = [batch["image"].sum().item() for batch in engine_loader(own_copy)]
    batches = iter(engine_loader(own_copy))
    sums = [next(batches)["image"].sum().item()]
    shutil.rmtree(own_copy)
    try:
        sums += [batch["image"].sum().item() for batch in batches]
    except slipstream.SlipstreamError as error:
        assert ".slip" in str(error)
    else:
        assert sums == whole


def folder_loader(folder: Path, **options: object) -> Loader:
    transform = [v1.RandomResizedCrop(32), v1.ToTensor()]
    return Loader(slipstream.open_dataset(folder), 4, transform=transform, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("trouble", ["deleted", "cut off", "emptied"])
def test_a_picture_file_in_trouble_is_named(
    trouble: str, picture_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(picture_folder, tmp_path / "pictures"))
    loader = folder_loader(folder)
    skipping = folder_loader(folder, on_error="skip")
    replacing = folder_loader(folder, on_error="substitute")
    assert len(list(loader)) == 6
    victim = folder / "013.jpg"
    if trouble == "deleted":
        victim.unlink()
    else:
        os.truncate(victim, 200 if trouble == "cut off" else 0)
    with pytest.raises(CorruptDataset, match=r"013\.jpg"):
        list(loader)
    assert sum(len(batch["image"]) for batch in skipping) == 23
    assert [bad.index for bad in skipping.bad_samples] == [13]
    assert sum(len(batch["image"]) for batch in replacing) == 24


class _Files:
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.iterdir())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        return len(self.paths[index].read_bytes())


def test_a_deleted_file_of_an_ordinary_dataset_is_named(
    picture_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(picture_folder, tmp_path / "pictures"))
    loader = Loader(_Files(folder), 4, num_workers=2)  # type: ignore[arg-type]
    assert len(list(loader)) == 6
    (folder / "013.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"013\.jpg"):
        list(loader)
