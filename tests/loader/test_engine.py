"""Batches of pictures from the engine: equal to Pillow's, wherever they are made."""

import shutil
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset, TensorDataset

import slipstream
from slipstream.augment import (
    CenterCrop,
    Normalize,
    PILToTensor,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToTensor,
)
from slipstream.augment.lowering import lower
from slipstream.augment.pillow import apply
from slipstream.errors import CorruptDataset, UsageError
from slipstream.loader.bad_samples import NoNeighbour, TooManyBadSamples
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.augment import standins
from tests.loader.damage import damage
from tests.pictures import jpeg, png, webp

COUNT = 23
TRAIN = [RandomResizedCrop(32), RandomHorizontalFlip()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of pictures of all sizes, JPEG, PNG and WebP."""
    root = tmp_path_factory.mktemp("pictures") / "photos"
    for number in range(COUNT):
        place = root / ("cats" if number % 3 else "dogs")
        place.mkdir(parents=True, exist_ok=True)
        size = (40 + 7 * number, 90 - 2 * number)
        make, ending = {5: (png, "png"), 11: (webp, "webp")}.get(number, (jpeg, "jpg"))
        (place / f"{number:02d}.{ending}").write_bytes(make(*size, number))
    return root


@pytest.fixture(scope="module")
def packed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "photos.slip"
    pack_source(open_source(folder), path, shard_bytes=20_000)
    return path


def by_pillow(folder: Path, key: str, transform: Any, seed: int, epoch: int, index: int) -> Any:
    """What a pipeline makes of a picture, with the numbers of (seed, epoch, sample)."""
    from slipstream import _native

    lowered = lower(transform, exact=True)
    with Image.open(folder / key) as opened:
        picture = opened.convert("RGB")

    def random(op: int, blocks: int) -> Any:
        return _native.philox(seed, epoch, np.asarray([index], dtype=np.int64), op, blocks)

    windows = lowered.geometry.draw([picture.width], [picture.height], random)
    return lowered.complete(np.asarray(apply(windows.row(0), picture)))


@pytest.mark.parametrize(
    "transform",
    [
        TRAIN,
        [Resize(48), CenterCrop(32)],
        [CenterCrop(120)],  # larger than some pictures: black around them
        [RandomResizedCrop((24, 40), interpolation="bicubic"), PILToTensor()],
        [*TRAIN, ToTensor(), Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))],
        standins.v1.Compose([standins.v1.RandomResizedCrop(32), standins.v1.ToTensor()]),
    ],
    ids=["train", "validate", "pad", "uint8", "float", "compose"],
)  # fmt: skip
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_packed_and_unpacked_pictures_equal_pillows(
    folder: Path, packed: Path, transform: Any, workers: int
) -> None:
    for path in (packed, folder):
        dataset = slipstream.open_dataset(path)
        loader = slipstream.Loader(
            dataset, 5, shuffle=True, transform=transform, seed=7, num_workers=workers
        )
        assert "native engine" in str(loader)
        order = {dataset[i]["key"]: i for i in range(len(dataset))}
        for epoch in range(2):
            seen = []
            for batch in loader:
                assert list(batch) == ["image", "label", "key"]
                for pixels, label, key in zip(*batch.values(), strict=True):
                    assert label == (0 if key.startswith("cats") else 1)
                    expected = by_pillow(folder, key, transform, 7, epoch, order[key])
                    if not isinstance(expected, torch.Tensor):
                        expected = torch.from_numpy(np.array(expected))
                    assert torch.equal(pixels, expected)
                seen += batch["key"]
            assert sorted(seen) == sorted(order)


def test_float_batches_are_contiguous_as_totensors(packed: Path) -> None:
    dataset = slipstream.open_dataset(packed)
    loader = slipstream.Loader(dataset, 5, transform=[*TRAIN, ToTensor()])
    batch = next(iter(loader))
    assert batch["image"].shape == (5, 3, 32, 32)
    assert batch["image"].is_contiguous() and batch["image"].dtype == torch.float32


def test_a_transform_that_only_python_knows_gets_the_engines_picture(
    folder: Path, packed: Path
) -> None:
    class Spy:
        def __call__(self, picture: Any) -> Any:
            assert isinstance(picture, Image.Image)
            return picture.rotate(90)

    transform = [*TRAIN, Spy(), ToTensor()]
    dataset = slipstream.open_dataset(packed)
    for workers in (0, 2):
        loader = slipstream.Loader(dataset, 5, transform=transform, num_workers=workers)
        assert "as given: Spy" in str(loader)
        for number, batch in enumerate(loader):
            for place, (pixels, key) in enumerate(zip(batch["image"], batch["key"], strict=True)):
                turned = by_pillow(folder, key, transform, 0, 0, 5 * number + place)
                assert torch.equal(pixels, turned)


def test_tuples(packed: Path) -> None:
    dataset = slipstream.open_dataset(packed, fields=["image", "label"], as_tuple=True)
    loader = slipstream.Loader(dataset, 5, transform=TRAIN)
    images, labels = next(iter(loader))
    assert images.shape == (5, 32, 32, 3) and labels.dtype == torch.int64
    sample = dataset[3]
    assert isinstance(sample, tuple) and sample[1] in (0, 1)


def test_subset_takes_the_engines_way(packed: Path) -> None:
    dataset = slipstream.open_dataset(packed)
    chosen = [3, 20, 4, 4]
    loader = slipstream.Loader(Subset(dataset, chosen), 4, transform=[Resize((16, 16))])
    assert "native engine" in str(loader)
    assert next(iter(loader))["key"] == [dataset[i]["key"] for i in chosen]


def test_pictures_of_one_size_need_no_transform(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(50, 40, number))
    loader = slipstream.Loader(slipstream.open_dataset(tmp_path), 4)
    assert next(iter(loader))["image"].shape == (4, 40, 50, 3)


def test_pictures_that_differ_in_size_are_told(packed: Path) -> None:
    loader = slipstream.Loader(slipstream.open_dataset(packed), 4)
    with pytest.raises(UsageError, match=r"differ in size: sample 0 is .* Give the loader a trans"):
        next(iter(loader))


def test_a_transform_for_a_dataset_of_ones_own_is_refused() -> None:
    with pytest.raises(UsageError, match="makes its own samples: give the transform to it"):
        slipstream.Loader([1, 2, 3], 2, transform=TRAIN)  # type: ignore[arg-type]


def test_the_loaders_dataset_gives_the_same_samples_to_any_loader(packed: Path) -> None:
    """Frameworks take `loader.dataset` and put it into a DataLoader of their own."""
    transform = [*TRAIN, ToTensor()]
    loader = slipstream.Loader(slipstream.open_dataset(packed), 5, transform=transform)
    for workers in (0, 2):
        plain = DataLoader(loader.dataset, 5, num_workers=workers)
        for ours, theirs in zip(loader, plain, strict=True):
            assert torch.equal(ours["image"], theirs["image"])
            assert torch.equal(ours["label"], theirs["label"]) and ours["key"] == theirs["key"]
        loader.set_epoch(0)
    assert loader.dataset.classes == ("cats", "dogs")


# torchvision's ImageFolder, by a stand-in with its names.


def make_image_folder(folder: Path, transform: Any, **changes: Any) -> Any:
    module = types.ModuleType("torchvision.datasets.folder")
    source = """
class DatasetFolder:
    def __getitem__(self, index):
        path, target = self.samples[index]
        sample = self.loader(path)
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target
    def __len__(self):
        return len(self.samples)

class ImageFolder(DatasetFolder):
    pass

def default_loader(path):
    from PIL import Image
    with open(path, "rb") as f:
        return Image.open(f).convert("RGB")
"""
    exec(source, module.__dict__)
    for item in (module.DatasetFolder, module.ImageFolder):
        item.__module__ = module.__name__
    dataset = module.ImageFolder()
    classes = sorted(path.name for path in folder.iterdir())
    dataset.samples = [
        (str(path), number)
        for number, name in enumerate(classes)
        for path in sorted((folder / name).iterdir())
    ]
    dataset.loader, dataset.transform, dataset.target_transform = (
        module.default_loader,
        transform,
        None,
    )
    for name, value in changes.items():
        setattr(dataset, name, value)
    return dataset


def test_image_folder_takes_the_engines_way_with_the_same_bytes(folder: Path) -> None:
    transform = standins.v1.Compose(
        [
            standins.v1.Resize(48), standins.v1.CenterCrop(32), standins.v1.ToTensor(),
            standins.v1.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]),
        ]
    )  # fmt: skip
    dataset = make_image_folder(folder, transform)
    loader = slipstream.Loader(dataset, 5)
    assert "native engine" in str(loader)
    for ours, theirs in zip(loader, DataLoader(dataset, 5), strict=True):
        assert type(ours) is type(theirs) is list
        assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
        assert ours[0].stride() == theirs[0].stride() and ours[1].dtype == theirs[1].dtype


def test_image_folder_with_a_transform_that_only_python_knows(folder: Path) -> None:
    class Spy:
        def __call__(self, picture: Any) -> Any:
            assert picture.size == (32, 32)
            return picture.rotate(90)

    transform = standins.v1.Compose(
        [standins.v1.Resize(48), standins.v1.CenterCrop(32), Spy(), standins.v1.ToTensor()]
    )
    dataset = make_image_folder(folder, transform)
    loader = slipstream.Loader(dataset, 5, num_workers=1)
    assert "engine: Resize(48), CenterCrop(32); as given: Spy" in str(loader)
    for ours, theirs in zip(loader, DataLoader(dataset, 5), strict=True):
        assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize(
    "change",
    [{"target_transform": float}, {"loader": lambda path: Image.open(path).convert("RGB")}],
    ids=["target_transform", "loader"],
)
def test_image_folder_with_code_of_its_own_is_read_by_python(folder: Path, change: Any) -> None:
    dataset = make_image_folder(folder, standins.v1.Compose([standins.v1.ToTensor()]), **change)
    assert "torch" in slipstream.Loader(dataset, 1).choice.path


def test_a_subclass_that_reads_otherwise_is_read_by_python(folder: Path) -> None:
    dataset = make_image_folder(folder, None)

    class Mine(type(dataset)):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            return index

    mine = Mine()
    mine.__dict__.update(dataset.__dict__)
    assert next(iter(slipstream.Loader(mine, 3))).tolist() == [0, 1, 2]


def test_a_sample_that_comes_twice_is_cropped_twice(folder: Path) -> None:
    dataset = slipstream.open_dataset(folder)
    for workers, transform in ((0, TRAIN), (1, [*TRAIN, lambda picture: picture])):
        loader = slipstream.Loader(
            dataset, 8, sampler=[3] * 16, transform=transform, num_workers=workers
        )
        batches = [batch["image"] for batch in loader]
        pictures = {picture.numpy().tobytes() for batch in batches for picture in batch}
        assert len(pictures) == 16
        loader.set_epoch(0)
        assert all(torch.equal(a, b["image"]) for a, b in zip(batches, loader, strict=True))


def test_changes_of_the_dataset_show_in_the_next_epoch(folder: Path) -> None:
    dataset = make_image_folder(
        folder, standins.v1.Compose([standins.v1.Resize([16, 16]), standins.v1.ToTensor()])
    )
    subset = Subset(dataset, [0, 1])
    loader = slipstream.Loader(subset, 2)
    assert next(iter(loader))[0].shape == (2, 3, 16, 16)
    dataset.transform = standins.v1.Compose([standins.v1.Resize([24, 24]), standins.v1.ToTensor()])
    subset.indices = [22, 0]
    images, labels = next(iter(loader))
    assert images.shape == (2, 3, 24, 24) and labels.tolist() == [1, 0]


def test_changes_of_a_subset_show_under_a_transform_too(packed: Path) -> None:
    subset = Subset(slipstream.open_dataset(packed), [0, 1])
    loader = slipstream.Loader(subset, 4, transform=[CenterCrop(16)])
    assert [len(batch["key"]) for batch in loader] == [2]
    subset.indices = [5, 4, 3]
    keys = [sample["key"] for sample in slipstream.open_dataset(packed)]
    assert all_keys(loader) == [keys[5], keys[4], keys[3]]
    assert loader.dataset[0]["key"] == keys[5]


# Bad samples.


@pytest.fixture
def damaged(tmp_path: Path, packed: Path) -> Path:
    """A copy in which the picture cats/04.jpg is damaged."""
    path = tmp_path / "damaged.slip"
    shutil.copytree(packed, path)
    keys = [sample["key"] for sample in slipstream.open_dataset(path)]
    damage(path, "image", [keys.index("cats/04.jpg")], byte=60)
    return path


def all_keys(loader: Any) -> list[str]:
    return [key for batch in loader for key in batch["key"]]


def test_a_damaged_picture_is_named(damaged: Path) -> None:
    loader = slipstream.Loader(slipstream.open_dataset(damaged), 5, transform=TRAIN)
    with pytest.raises(CorruptDataset, match=r'sample 2: .*checksum.* on_error="skip"'):
        list(loader)


def test_skip_leaves_it_out(damaged: Path) -> None:
    dataset = slipstream.open_dataset(damaged)
    loader = slipstream.Loader(dataset, 5, transform=TRAIN, on_error="skip")
    sizes = [len(batch["image"]) for batch in loader]
    assert sizes == [4, 5, 5, 5, 3]
    (bad,) = loader.bad_samples
    assert (bad.index, bad.epoch, bad.substitute) == (2, 0, None) and "checksum" in bad.reason


def test_substitute_takes_the_next_sample_and_keeps_lengths(damaged: Path) -> None:
    dataset = slipstream.open_dataset(damaged)
    loader = slipstream.Loader(dataset, 5, transform=TRAIN, on_error="substitute")
    first = next(iter(loader))
    assert len(first["key"]) == 5 and first["key"][2] == first["key"][3]
    assert torch.equal(first["image"][2], first["image"][3])
    assert [bad.substitute for bad in loader.bad_samples] == [3]


def test_too_many_bad_samples_stop_the_run(tmp_path: Path) -> None:
    for number in range(100):
        good = jpeg(40, 40, number)
        (tmp_path / f"{number:03d}.jpg").write_bytes(b"no picture" if number % 2 else good)
    loader = slipstream.Loader(
        slipstream.open_dataset(tmp_path), 10, transform=TRAIN, on_error="skip"
    )
    with pytest.raises(TooManyBadSamples, match=r"samples are bad, more than 5%"):
        list(loader)
    assert len(loader.bad_samples) > 16


def test_no_neighbour_left(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02d}.jpg").write_bytes(b"" if number else jpeg(40, 40))
    loader = slipstream.Loader(
        slipstream.open_dataset(tmp_path), 5, transform=TRAIN, on_error="substitute"
    )
    with pytest.raises(NoNeighbour, match="so are the 16 after it"):
        list(loader)


def test_a_file_that_is_gone_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "photos"
    shutil.copytree(folder, copy)
    dataset = slipstream.open_dataset(copy)
    (copy / "cats" / "04.jpg").unlink()
    with pytest.raises(CorruptDataset, match=r"cats/04.jpg: No such file"):
        list(slipstream.Loader(dataset, 5, transform=TRAIN))
    loader = slipstream.Loader(dataset, 5, transform=TRAIN, on_error="skip")
    assert len(all_keys(loader)) == COUNT - 1


def test_a_picture_too_small_for_a_random_crop_is_refused_as_torchvision_does(
    packed: Path,
) -> None:
    loader = slipstream.Loader(slipstream.open_dataset(packed), 5, transform=[RandomCrop(60)])
    with pytest.raises(CorruptDataset, match="Required crop size"):
        list(loader)


class Faulty(torch.utils.data.Dataset[Any]):
    """Every tenth sample raises, every tenth is None."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        if index % 100 == 3:
            raise OSError(f"no file for {index}")
        return None if index % 100 == 7 else torch.tensor(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_policies_for_any_dataset(workers: int) -> None:
    loader = slipstream.Loader(Faulty(), 10, num_workers=workers, on_error="skip")
    assert torch.cat(list(loader)).tolist() == [i for i in range(200) if i % 100 not in (3, 7)]
    reasons = [(bad.index, bad.reason) for bad in loader.bad_samples]
    assert reasons == [
        (3, "OSError: no file for 3"), (7, "the dataset returned None"),
        (103, "OSError: no file for 103"), (107, "the dataset returned None"),
    ]  # fmt: skip
    loader = slipstream.Loader(Faulty(), 10, num_workers=workers, on_error="substitute")
    assert [len(batch) for batch in loader] == [10] * 20
    assert [bad.substitute for bad in loader.bad_samples] == [4, 8, 104, 108]
    with pytest.raises(OSError, match="no file for 3"):
        list(slipstream.Loader(Faulty(), 10, num_workers=workers))


def test_a_batch_of_bad_samples_only_is_left_out() -> None:
    class Gap(Faulty):
        def __getitem__(self, index: int) -> Any:
            return None if 10 <= index < 20 else index

    for workers in (0, 1):
        loader = slipstream.Loader(Gap(), 10, num_workers=workers, on_error="skip")
        assert len(list(loader)) == 19


def test_nothing_of_torchvision_is_imported(packed: Path) -> None:
    script = """
        import sys
        import slipstream
        from slipstream.augment import RandomHorizontalFlip, RandomResizedCrop
        transform = [RandomResizedCrop(32), RandomHorizontalFlip()]
        list(slipstream.Loader(slipstream.open_dataset(sys.argv[1]), 5, transform=transform))
        assert "torchvision" not in sys.modules
    """
    # In a process of its own: other tests may have imported it here.
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(packed)], check=True)


def test_threads_are_no_worker_processes(packed: Path) -> None:
    """torch warns of more processes than cores; warnings are errors here."""
    dataset = slipstream.open_dataset(packed)
    loader = slipstream.Loader(dataset, 4, num_workers=999, transform=[Resize((8, 8))])
    assert "threads: " in str(loader)
    # Of its own datasets torch promises the warning.
    for data in (TensorDataset(torch.arange(6)), list(range(6))):
        with pytest.warns(UserWarning, match="will create 999 worker processes") as told:
            slipstream.Loader(data, 4, num_workers=999)
        assert len(told) == 1
