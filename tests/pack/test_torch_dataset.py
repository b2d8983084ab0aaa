"""`pack_dataset`: any torch Dataset."""

import io
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from PIL import Image

import slipstream
from slipstream import pack_dataset
from slipstream.errors import BadSource, UsageError
from slipstream.pack.sources.torch_dataset import open_torch
from slipstream.store.dataset import Dataset
from tests.conftest import EveryKind
from tests.pictures import jpeg, photo, pixels, write_mixed

Fingerprint = Callable[[Path], dict[str, str]]
Pair = namedtuple("Pair", "left right")


class Listed(torch.utils.data.Dataset):
    """A dataset of given samples; an exception among them is raised."""

    def __init__(self, *samples: Any) -> None:
        self.samples_given = samples

    def __len__(self) -> int:
        return len(self.samples_given)

    def __getitem__(self, index: int) -> Any:
        sample = self.samples_given[index]
        if isinstance(sample, Exception):
            raise sample
        return sample


def packed(tmp_path: Path, dataset: Any, **options: Any) -> Dataset:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.slip"
    pack_dataset(dataset, path, **options)
    return slipstream.open_dataset(path)


def test_picture_and_label(tmp_path: Path) -> None:
    source = Listed(*((photo(9, 9, k), k) for k in range(3)))
    source.classes = ["a", "b", "c"]
    dataset = packed(tmp_path, source)
    assert [(f.name, f.kind) for f in dataset.fields] == [("image", "image"), ("label", "int")]
    assert dataset.classes == ("a", "b", "c")
    for k in range(3):
        np.testing.assert_array_equal(dataset[k]["image"], np.asarray(photo(9, 9, k)))
        assert dataset[k]["label"] == k


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "F"])
def test_pictures_of_any_mode_keep_their_pixels(tmp_path: Path, mode: str) -> None:
    if mode == "I;16":
        picture = Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30))
    else:
        picture = photo(30, 20).convert(mode)
    dataset = packed(tmp_path, Listed(picture))
    np.testing.assert_array_equal(dataset[0]["image"], np.asarray(picture.convert("RGB")))


def test_tensors_and_names(tmp_path: Path) -> None:
    dataset = packed(tmp_path, Listed((torch.ones(2, 3), torch.tensor(4), torch.tensor(0.5))))
    assert [(f.name, f.kind) for f in dataset.fields] == [
        ("x0", "array"), ("x1", "int"), ("x2", "float"),
    ]  # fmt: skip
    assert dataset[0]["x0"].dtype == np.float32
    named = packed(tmp_path, Listed((np.zeros(2), 1)), fields=["signal", "class"])
    assert list(named[0]) == ["signal", "class"]
    assert list(packed(tmp_path, Listed(Pair(1, "a")))[0]) == ["left", "right"]
    assert packed(tmp_path, Listed(np.arange(3)))[0]["x"].tolist() == [0, 1, 2]
    assert packed(tmp_path, Listed((1, [1, "a", None])))[0]["x1"] == [1, "a", None]
    some = packed(tmp_path, Listed({"a": 1, "b": 2}), fields=["b"])
    assert some[0] == {"b": 2}


def test_bytes_of_files(tmp_path: Path) -> None:
    data = jpeg(40, 30)
    dataset = packed(tmp_path, Listed((data, 1)), fields={"photo": "jpeg", "label": "auto"})
    assert dataset.column("photo", "coding").tolist() == [1]
    np.testing.assert_array_equal(dataset[0]["photo"], pixels(data))


def test_other_shape_says_how_to_declare_it(tmp_path: Path) -> None:
    uneven = Listed({"x": np.zeros((2, 2))}, {"x": np.zeros((3, 2))})
    with pytest.raises(BadSource, match=r'has shape \[2, 2\], got \[3, 2\]; declare .*"ragged"'):
        pack_dataset(uneven, tmp_path / "a.slip")
    dataset = packed(tmp_path, uneven, fields={"x": "ragged"})
    assert [sample["x"].shape for sample in dataset] == [(2, 2), (3, 2)]


@pytest.mark.parametrize(
    ("sample", "fields", "message"),
    [
        (object(), None, "cannot store a object"),
        ((1, 2), ["a"], "1 fields named, but a sample has 2 parts"),
        ({"a": 1}, ["b"], "Samples have no b"),
        ({"a b": 1}, None, "cannot name a field"),
        ((1,), {"a": "movie"}, "unknown kind 'movie'"),
        (torch.zeros(2, dtype=torch.bfloat16), None, "NumPy has no torch.bfloat16"),
        (np.array(["a"]), None, "cannot store arrays of"),
        (photo(4, 4), {"x": "jpeg"}, "let the dataset return the bytes"),
    ],
)
def test_what_cannot_be_stored(tmp_path: Path, sample: Any, fields: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pack_dataset(Listed(sample), tmp_path / "a.slip", fields=fields)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_dataset(tmp_path: Path) -> None:
    dataset = Listed(ValueError("first"), (1, 2), KeyError("lost"), (3, 4), (1, 2, 3), (5, "x"))
    with pytest.raises(BadSource, match="0: ValueError: first"):
        pack_dataset(dataset, tmp_path / "a.slip")
    report = pack_dataset(dataset, tmp_path / "a.slip", on_error="skip")
    assert [entry["key"] for entry in report.skipped] == ["0", "2", "4", "5"]
    assert [s["x0"] for s in slipstream.open_dataset(tmp_path / "a.slip")] == [1, 3]
    with pytest.raises(UsageError, match="gives no sample to learn its fields from"):
        pack_dataset(Listed(ValueError("first")), tmp_path / "b.slip")
    with pytest.raises(UsageError, match="is empty"):
        pack_dataset(Listed(), tmp_path / "b.slip")


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        (1, 1 << 63, "9223372036854775808 does not fit into 64 bits"),
        (1, 1.5, "expected an integer, got float '1.5'"),
        (1, np.float32(2), "expected an integer, got float32"),
        (1.5, "1.5", "expected a number, got str '1.5'"),
        ("a", None, "expected text, got NoneType"),
        ("a", "\ud800", "surrogates not allowed"),
        (b"a", 5, "expected bytes, got int '5'"),
        ([1], [float("nan")], "not JSON compliant"),
        ([1], [object()], "not JSON"),
        (np.zeros(2), np.zeros(2, np.float32), "holds <f8, got <f4"),
        (np.zeros(2), np.zeros((2, 2)), "has 1 dimensions, got 2"),
        (photo(4, 4), b"no picture", "cannot be decoded"),
    ],
)
def test_values_of_another_kind_are_refused(
    tmp_path: Path, first: Any, other: Any, message: str
) -> None:
    report = pack_dataset(Listed((first,), (other,)), tmp_path / "a.slip", on_error="skip")
    assert report.samples == 1
    (entry,) = report.skipped
    assert message in entry["reason"]


def test_workers_do_not_change_a_byte(tmp_path: Path, fingerprint: Fingerprint) -> None:
    found = []
    for workers in (0, 2):
        path = tmp_path / f"{workers}.slip"
        pack_dataset(EveryKind(), path, fields=EveryKind.KINDS, workers=workers, shard_bytes=4096)
        found.append(fingerprint(path))
    assert found[0] == found[1]


def test_packing_leaves_random_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    pack_dataset(EveryKind(), tmp_path / "a.slip", fields=EveryKind.KINDS)
    assert torch.equal(torch.rand(4), expected)


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, count: int, fail_at: int | None = None) -> None:
        self.count = count
        self.fail_at = fail_at

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        for index in range(self.count):
            if index == self.fail_at:
                raise RuntimeError("stream broke")
            yield index, np.full(100, index)


def test_iterable_dataset(tmp_path: Path, fingerprint: Fingerprint) -> None:
    pack_dataset(Stream(600), tmp_path / "a.slip", shard_bytes=50_000)
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert [sample["x0"] for sample in dataset] == list(range(600))
    with pytest.raises(RuntimeError, match="stream broke"):
        pack_dataset(Stream(600, fail_at=590), tmp_path / "b.slip", shard_bytes=50_000)
    assert (tmp_path / "b.slip.partial" / "00000.slip").is_file()
    pack_dataset(Stream(600), tmp_path / "b.slip", shard_bytes=50_000)
    assert fingerprint(tmp_path / "a.slip") == fingerprint(tmp_path / "b.slip")
    with pytest.raises(UsageError, match="is empty"):
        pack_dataset(Stream(0), tmp_path / "c.slip")


class Counting(Listed):
    """Remembers which samples were asked for; stops at one of them."""

    def __init__(self, count: int) -> None:
        super().__init__(*((k, np.full(100, k)) for k in range(count)))
        self.asked: list[int] = []
        self.stop_at: int | None = None

    def __getitem__(self, index: int) -> Any:
        if index == self.stop_at:
            raise KeyboardInterrupt
        self.asked.append(index)
        return super().__getitem__(index)


def test_interrupted_pack_goes_on(tmp_path: Path, fingerprint: Fingerprint) -> None:
    dataset = Counting(600)
    pack_dataset(dataset, tmp_path / "whole.slip", shard_bytes=50_000)
    dataset.stop_at = 590
    with pytest.raises(KeyboardInterrupt):
        pack_dataset(dataset, tmp_path / "a.slip", shard_bytes=50_000)
    dataset.stop_at = None
    dataset.asked.clear()
    report = pack_dataset(dataset, tmp_path / "a.slip", shard_bytes=50_000)
    assert report.continued > 100
    left = range(report.continued, 600)
    assert dataset.asked[-len(left) :] == list(left)
    assert len(dataset.asked) == len(left) + 11  # one shows the fields, five twice what it is
    assert fingerprint(tmp_path / "a.slip") == fingerprint(tmp_path / "whole.slip")


class FolderLike:
    """What torchvision's ImageFolder looks like from outside."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.classes = sorted(path.name for path in root.iterdir())
        files = sorted(path for path in root.rglob("*") if path.is_file())
        numbers = {name: number for number, name in enumerate(self.classes)}
        self.samples = [(str(p), numbers[p.relative_to(root).parts[0]]) for p in files]
        self.loader = Image.open

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("packed from its files, not by its items")


def test_folder_datasets_are_packed_from_their_files(tmp_path: Path) -> None:
    folder = FolderLike(write_mixed(tmp_path / "photos"))
    dataset = packed(tmp_path, folder)
    assert dataset.classes == ("cat", "dog", "newt")
    assert [s["key"] for s in dataset] == [
        str(Path(path).relative_to(folder.root)) for path, _ in folder.samples
    ]
    assert dataset.column("image", "coding").sum() == 7
    subset = packed(tmp_path, torch.utils.data.Subset(folder, [5, 0]))
    assert [s["key"] for s in subset] == [dataset[5]["key"], dataset[0]["key"]]
    assert [s["label"] for s in subset] == [1, 0]
    renamed = packed(tmp_path, folder, fields=["photo", "species"])
    assert list(renamed[0]) == ["photo", "species", "key"]
    assert renamed.column("photo", "coding").sum() == 7


def test_folder_of_other_files_is_an_ordinary_dataset(tmp_path: Path) -> None:
    dataset = Listed((np.zeros(3), 0))
    dataset.samples = [(str(tmp_path / "a.npy"), 0)]
    dataset.loader = np.load
    source = open_torch(dataset, fields=None, workers=0)
    assert source.kind == "torch dataset"


def test_not_a_dataset(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="int is no dataset"):
        pack_dataset(7, tmp_path / "a.slip")


def test_jpegs_that_pillow_opened_are_remarked_on(tmp_path: Path) -> None:
    data = jpeg(40, 30)
    opened = [{"image": Image.open(io.BytesIO(data)), "n": 0}]
    with pytest.warns(UserWarning, match=r'"image" holds JPEGs .*fields=\{"image": "jpeg"') as told:
        report = pack_dataset(opened, tmp_path / "pixels.slip")
    assert len(report.remarks) == len(told) == 1 and told[0].filename == __file__
    assert not slipstream.open_dataset(tmp_path / "pixels.slip").column("image", "coding").any()
    others = [{"image": Image.open(io.BytesIO(data)).convert("RGB"), "file": data}]
    assert not pack_dataset(others, tmp_path / "made.slip").remarks
