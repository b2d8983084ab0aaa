"""Appending to a dataset."""

from pathlib import Path

import pytest

import slipstream
from slipstream.errors import UsageError
from slipstream.pack.pack import pack_source
from slipstream.pack.pictures import PictureOptions
from slipstream.pack.sources.detect import open_source
from slipstream.store.reader import Store
from slipstream.store.verify import verify_dataset
from tests.pictures import jpeg, png, write_flat, write_mixed


def test_append_adds_shards_behind(tmp_path: Path) -> None:
    pack_source(open_source(write_flat(tmp_path / "a", 3)), tmp_path / "d.slip")
    old_reader = slipstream.open_dataset(tmp_path / "d.slip")
    report = pack_source(
        open_source(write_flat(tmp_path / "b", 2)), tmp_path / "d.slip", append=True
    )
    dataset = slipstream.open_dataset(tmp_path / "d.slip")
    assert (report.samples, report.shards, len(dataset)) == (2, 1, 5)
    assert [sample["key"] for sample in dataset] == [f"00{k}.jpg" for k in (0, 1, 2, 0, 1)]
    assert list(verify_dataset(tmp_path / "d.slip")) == []
    assert len(list(old_reader)) == 3
    made_by = Store(tmp_path / "d.slip").manifest.made_by
    assert [entry["source"] for entry in made_by["appended"]] == ["folder"]
    assert not (tmp_path / "d.slip.partial").exists()


def test_classes_keep_their_numbers(tmp_path: Path) -> None:
    write_mixed(tmp_path / "a")
    for name in ("ant/1.jpg", "dog/2.jpg"):
        (tmp_path / "b" / name).parent.mkdir(parents=True)
        (tmp_path / "b" / name).write_bytes(jpeg(9, 9))
    pack_source(open_source(tmp_path / "a"), tmp_path / "d.slip")
    pack_source(open_source(tmp_path / "b"), tmp_path / "d.slip", append=True)
    dataset = slipstream.open_dataset(tmp_path / "d.slip")
    assert dataset.classes == ("cat", "dog", "newt", "ant")
    assert [(sample["key"], sample["label"]) for sample in dataset[12:]] == [
        ("ant/1.jpg", 3),
        ("dog/2.jpg", 1),
    ]


def test_kinds_of_pictures_may_mix(tmp_path: Path) -> None:
    pack_source(open_source(write_flat(tmp_path / "a", 1)), tmp_path / "d.slip")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.png").write_bytes(png(8, 8))
    pack_source(open_source(tmp_path / "b"), tmp_path / "d.slip", append=True)
    dataset = slipstream.open_dataset(tmp_path / "d.slip")
    assert dataset.column("image", "coding").tolist() == [1, 0]
    assert dataset[1]["image"].shape == (8, 8, 3)


def test_other_fields_are_refused(tmp_path: Path) -> None:
    pack_source(open_source(write_flat(tmp_path / "a", 1)), tmp_path / "d.slip")
    before = (tmp_path / "d.slip" / "manifest.json").read_bytes()
    write_mixed(tmp_path / "b")
    with pytest.raises(UsageError, match="Cannot append with --decoded"):
        pack_source(
            open_source(write_flat(tmp_path / "more", 1)),
            tmp_path / "d.slip",
            append=True,
            pictures=PictureOptions(decoded=True),
        )
    with pytest.raises(UsageError, match="the dataset has image jpeg, key text; the source gives"):
        pack_source(open_source(tmp_path / "b"), tmp_path / "d.slip", append=True)
    assert (tmp_path / "d.slip" / "manifest.json").read_bytes() == before


def test_nothing_to_append_to(tmp_path: Path) -> None:
    source = open_source(write_flat(tmp_path / "a", 1))
    with pytest.raises(UsageError, match=r"d\.slip does not exist"):
        pack_source(source, tmp_path / "d.slip", append=True)


def test_same_source_may_be_appended_twice(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "a", 2)
    pack_source(open_source(source), tmp_path / "d.slip")
    for _ in range(2):
        pack_source(open_source(source), tmp_path / "d.slip", append=True)
    assert len(slipstream.open_dataset(tmp_path / "d.slip")) == 6
