"""Ordinary files out of packed datasets."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slipstream.errors import CorruptDataset, UsageError
from slipstream.pack.export import export_dataset
from slipstream.pack.pack import pack_dataset, pack_source
from slipstream.pack.sources.detect import open_source
from tests.conftest import EveryKind
from tests.pictures import jpeg, pixels, turned_jpeg, write_flat


def test_pictures_come_back(mixed_dataset: Path, mixed_folder: Path, tmp_path: Path) -> None:
    report = export_dataset(mixed_dataset, tmp_path / "out")
    originals = {str(p.relative_to(mixed_folder)): p for p in mixed_folder.rglob("*.*")}
    exported = {str(p.relative_to(tmp_path / "out")): p for p in (tmp_path / "out").rglob("*.*")}
    assert exported.keys() == {*originals, "labels.csv"}
    assert report.files == len(originals)
    for name, path in originals.items():
        data = exported[name].read_bytes()
        np.testing.assert_array_equal(pixels(data), pixels(path.read_bytes()))
        if path.suffix in (".png", ".webp") or "cmyk" in name:
            assert data == path.read_bytes()
    with (tmp_path / "out" / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["file"]: row["label"] for row in rows} == {
        name: name.split("/", 1)[0] for name in originals
    }


def test_exported_folder_packs_to_the_same_pictures(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 4)
    (source / "turned.jpg").write_bytes(turned_jpeg(6))
    (source / "profile.jpg").write_bytes(jpeg(40, 30, icc_profile=b"profile" * 40))
    pack_source(open_source(source), tmp_path / "a.slip")
    export_dataset(tmp_path / "a.slip", tmp_path / "out")
    pack_source(open_source(tmp_path / "out"), tmp_path / "b.slip")
    assert (tmp_path / "a.slip/00000.slip").read_bytes() == (
        tmp_path / "b.slip/00000.slip"
    ).read_bytes()
    with Image.open(tmp_path / "out" / "turned.jpg") as picture:
        assert picture.getexif()[0x0112] == 6
    with Image.open(tmp_path / "out" / "profile.jpg") as picture:
        assert picture.info["icc_profile"] == b"profile" * 40


def test_other_kinds_come_back(tmp_path: Path) -> None:
    pack_dataset(EveryKind(), tmp_path / "a.slip", fields=EveryKind.KINDS)
    report = export_dataset(tmp_path / "a.slip", tmp_path / "out")
    assert report.files == 4 * EveryKind.length
    sample = EveryKind()[3]
    out = tmp_path / "out"
    np.testing.assert_array_equal(np.load(out / "00000003.npy"), sample["fixed"])
    np.testing.assert_array_equal(np.load(out / "00000003.ragged.npy"), sample["ragged"])
    assert (out / "00000003.raw.bin").read_bytes() == sample["raw"]
    assert (out / "00000003.tree.json").read_bytes().startswith(b'{"a":[1,2.5,null,"x"]')
    with (out / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[3] == {
        "file": "00000003.npy", "text": sample["text"], "whole": "1", "real": "1.0",
    }  # fmt: skip


class Keyed:
    """Samples with keys of our choice."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"key": self.keys[index], "data": b"x%d" % index}


def test_same_names_do_not_overwrite_each_other(tmp_path: Path) -> None:
    pack_dataset(Keyed("a", "b", "a"), tmp_path / "a.slip")
    report = export_dataset(tmp_path / "a.slip", tmp_path / "out")
    assert report.renamed == ["a.data.bin"]
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["a.data-2.bin", "a.data.bin", "b.data.bin"]
    assert (tmp_path / "out" / "a.data-2.bin").read_bytes() == b"x2"


@pytest.mark.parametrize("key", ["../up", "/etc/up", "a/../../up", "", "a\0b"])
def test_keys_cannot_lead_out_of_the_folder(tmp_path: Path, key: str) -> None:
    pack_dataset(Keyed(key), tmp_path / "a.slip")
    with pytest.raises(CorruptDataset, match="key would lead out of the folder"):
        export_dataset(tmp_path / "a.slip", tmp_path / "deep" / "out")
    assert list(tmp_path.rglob("*up*")) == []


def test_folder_in_use_is_refused(tmp_path: Path, mixed_dataset: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        export_dataset(mixed_dataset, tmp_path)


def test_damaged_samples_can_be_skipped(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 3)
    pack_source(open_source(source), tmp_path / "a.slip")
    path = tmp_path / "a.slip" / "00000.slip"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataset):
        export_dataset(tmp_path / "a.slip", tmp_path / "out")
    # What the failed one has left does not stand in the way of another try.
    report = export_dataset(tmp_path / "a.slip", tmp_path / "out", on_error="skip")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["001.jpg", "002.jpg"]
    assert report.files == 2
    assert len(report.skipped) == 1
    assert "sample 0" in report.skipped[0]


def test_unfinished_export_of_another_dataset_is_left_alone(
    tmp_path: Path, mixed_dataset: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".unfinished-export").write_text("1")
    with pytest.raises(UsageError, match="is not empty"):
        export_dataset(mixed_dataset, tmp_path / "out")
