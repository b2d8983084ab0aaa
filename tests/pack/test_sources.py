"""Sources other than plain folders: CSV labels, tar shards, NumPy files."""

import io
import json
import math
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

import slipstream
from slipstream.errors import BadSource, UsageError
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from slipstream.store.dataset import Dataset
from slipstream.store.verify import verify_dataset
from tests.pictures import jpeg, pixels, png, write_flat


def packed(tmp_path: Path, *args: object, **options: object) -> Dataset:
    path = tmp_path / "packed.slip"
    pack_source(open_source(*args, **options), path)  # type: ignore[arg-type]
    assert list(verify_dataset(path)) == []
    return slipstream.open_dataset(path)


# CSV


def test_csv_with_heading(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 3)
    table = tmp_path / "labels.csv"
    table.write_text("file,breed,age,weight,note\n002.jpg,pug,3,7.5,\n000.jpg,afghan,1,nan,x\n")
    report = pack_source(open_source(source, labels=table), tmp_path / "a.slip")
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert [f"{field.name}:{field.kind}" for field in dataset.fields] == [
        "image:jpeg", "breed:text", "age:int", "weight:float", "note:text", "key:text",
    ]  # fmt: skip
    assert [sample["key"] for sample in dataset] == ["002.jpg", "000.jpg"]
    assert (dataset[0]["age"], dataset[0]["weight"], dataset[1]["note"]) == (3, 7.5, "x")
    assert math.isnan(dataset[1]["weight"])
    assert report.remarks == ["pictures that labels.csv does not name were left aside: 1"]


def test_csv_without_heading_or_suffixes(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 3)
    table = tmp_path / "labels.csv"
    table.write_text("000,pug\n001,afghan\n002,pug\n")
    dataset = packed(tmp_path, source, labels=table)
    assert dataset.classes == ("afghan", "pug")
    assert [(s["label"], s["key"]) for s in dataset] == [
        (1, "000.jpg"), (0, "001.jpg"), (1, "002.jpg"),
    ]  # fmt: skip


def test_sole_text_column_becomes_the_label(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 2)
    table = tmp_path / "labels.csv"
    table.write_text("name,score,breed\n000.jpg,1,pug\n001.jpg,2,pug\n")
    dataset = packed(tmp_path, source, labels=table)
    assert dataset.classes == ("pug",)
    assert (dataset[1]["score"], dataset[1]["label"]) == (2, 0)


def test_csv_names_a_missing_file(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 1)
    table = tmp_path / "labels.csv"
    table.write_text("000.jpg,1\nother.jpg,2\n")
    with pytest.raises(BadSource, match=r"other\.jpg: cannot be read.*labels\.csv, row 2"):
        pack_source(open_source(source, labels=table), tmp_path / "a.slip")
    table.write_text("000.jpg,1\n001.jpg\n")
    with pytest.raises(UsageError, match="row 2: 1 columns, the first row has 2"):
        open_source(source, labels=table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,n\n000.jpg,1\n001.jpg,2.5\n002.jpg,?\n", r"row 4, column n: '\?' is not a number"),
        ("000.jpg,1\n001.jpg,\n002.jpg,3\n", "row 2, column label: the cell is empty"),
        ("000.jpg,a\n001.jpg,\n002.jpg,b\n", "row 2, column label: the cell is empty"),
        ("file;label\n000.jpg;1\n", "one column, with ';' in it"),
        ("file,label\n", "has one row, and 'file' is no picture"),
        ("file,n,n\n000.jpg,1,2\n", "two columns are called 'n'. Rename one"),
        ("file,key\n000.jpg,1\n", "a column is called 'key'.*Rename"),
        ("000.jpg,1\n../000.jpg,2\n", "row 2: '../000.jpg' leads out of the folder"),
        ("/etc/x.jpg,1\n", "row 1: '/etc/x.jpg' leads out"),
        (",1\n000.jpg,2\n,3\n", "row 3: the file name is empty"),
    ],
)
def test_csv_mistakes_name_their_place(tmp_path: Path, text: str, message: str) -> None:
    source = write_flat(tmp_path / "photos", 3)
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        open_source(source, labels=tmp_path / "labels.csv")


def test_csv_numbers_that_are_names_are_text(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 2)
    table = tmp_path / "labels.csv"
    table.write_text(f"file,agent,serial,mostly\n000.jpg,007,{1 << 64},x\n001.jpg,1,2,y\n")
    dataset = packed(tmp_path, source, labels=table)
    assert [field.kind for field in dataset.fields[1:4]] == ["text"] * 3
    assert dataset[0]["agent"] == "007"


# folders


def test_class_folders_with_loose_pictures_are_refused(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 1)
    write_flat(source / "cat", 1)
    with pytest.raises(UsageError, match=r"\(cat/000.jpg\) and loose .* \(000.jpg\).*one by one"):
        open_source(source)


def test_empty_class_folders_and_hidden_files_are_mentioned(tmp_path: Path) -> None:
    write_flat(tmp_path / "photos" / "cat", 1)
    (tmp_path / "photos" / "cat" / ".thumb.jpg").write_bytes(b"x")
    for name in ("dog", "eel"):
        (tmp_path / "photos" / name).mkdir()
    source = open_source(tmp_path / "photos")
    assert source.classes == ("cat",)
    assert source.remarks == [
        "hidden files were left aside: 1", "2 empty class folders left out: dog, eel",
    ]  # fmt: skip


def test_a_name_that_is_not_utf8_is_told_clearly(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 1)
    with open(os.fsencode(source) + b"/caf\xe9.jpg", "wb") as file:  # noqa: PTH123  bytes
        file.write(jpeg())
    with pytest.raises(BadSource, match=r"caf\\udce9.jpg: the name is not UTF-8; rename"):
        pack_source(open_source(source), tmp_path / "a.slip")


# tar


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def tar_sample(index: int) -> dict[str, bytes]:
    name = f"part/{index:04d}"
    return {
        f"{name}.jpg": jpeg(20 + index, 30, index),
        f"{name}.seg.png": png(20, 30, index),
        f"{name}.cls": str(index % 3).encode(),
        f"{name}.txt": f"größe {index}".encode(),
        f"{name}.json": json.dumps({"i": index}).encode(),
        f"{name}.npy": npy(np.arange(index, dtype=np.float32)),
        f"{name}.pth": b"\0" * index,
    }


def test_tar_shards(tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    for shard in range(2):
        files = {k: v for i in range(3) for k, v in tar_sample(3 * shard + i).items()}
        write_tar(tmp_path / "tars" / f"{shard}.tar", files)
    dataset = packed(tmp_path, tmp_path / "tars")
    assert {field.name: field.kind for field in dataset.fields} == {
        "jpg": "jpeg", "seg.png": "image", "label": "int", "txt": "text",
        "json": "json", "npy": "array", "pth": "bytes", "key": "text",
    }  # fmt: skip
    for index, sample in enumerate(dataset):
        files = tar_sample(index)
        name = f"part/{index:04d}"
        assert sample["key"] == name
        np.testing.assert_array_equal(sample["jpg"], pixels(files[f"{name}.jpg"]))
        np.testing.assert_array_equal(sample["seg.png"], pixels(files[f"{name}.seg.png"]))
        np.testing.assert_array_equal(sample["npy"], np.arange(index, dtype=np.float32))
        assert sample["label"] == index % 3
        assert (sample["txt"], sample["json"]) == (f"größe {index}", {"i": index})
        assert sample["pth"] == b"\0" * index


def test_tar_member_that_leads_out_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"../x.jpg": jpeg()})
    with pytest.raises(BadSource, match=r"\.\./x: the name leads out of the folder"):
        pack_source(open_source(tmp_path / "a.tar"), tmp_path / "a.slip")


def test_sole_picture_of_a_tar_is_called_image(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"./x.jpg": jpeg(9, 9), "./x.cls": b"4\n"})
    dataset = packed(tmp_path, tmp_path / "a.tar")
    assert list(dataset[0]) == ["image", "label", "key"]
    assert (dataset[0]["label"], dataset[0]["key"]) == (4, "x")


def test_tar_sample_without_a_part(tmp_path: Path) -> None:
    files = {"a.jpg": jpeg(9, 9), "a.cls": b"1", "b.jpg": jpeg(9, 9), "c.jpg": jpeg(8, 8)}
    write_tar(
        tmp_path / "a.tar", {**files, "c.cls": b"x", "d.cls": b"1", "d.jpg": jpeg(), "d.q": b""}
    )
    report = pack_source(open_source(tmp_path / "a.tar"), tmp_path / "a.slip", on_error="skip")
    assert report.skipped == [
        {"key": "b", "reason": "has no .cls, the first sample does"},
        {"key": "c", "reason": ".cls: invalid literal for int() with base 10: b'x'"},
    ]
    assert report.remarks == ["members .q were left aside, as the first sample has none: 1"]


def test_compressed_tar_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w:gz"):
        pass
    with pytest.raises(UsageError, match="is not a plain tar file"):
        open_source(tmp_path / "a.tar")


# NumPy


def test_rows_of_an_npz(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = {
        "x": random.normal(size=(5, 3, 2)).astype(">f4"),
        "order": np.asfortranarray(random.integers(0, 9, (5, 4))),
        "y": np.arange(5, dtype=np.uint8),
        "weight": np.linspace(0, 1, 5, dtype=np.float32),
        "flag": np.array([True, False, True, True, False]),
        "name": np.array(["a", "bc", "", "é", "x"]),
    }
    for save in (np.savez, np.savez_compressed):
        path = tmp_path / save.__name__
        path.mkdir()
        save(path / "a.npz", **arrays)
        dataset = packed(path, path / "a.npz")
        kinds = {field.name: field.kind for field in dataset.fields}
        assert kinds == {
            "x": "array", "order": "array", "y": "int", "weight": "float", "flag": "int",
            "name": "text",
        }  # fmt: skip
        for index, sample in enumerate(dataset):
            for name, array in arrays.items():
                np.testing.assert_array_equal(sample[name], array[index])


def test_stored_npz_is_mapped_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 1000)))
    source = open_source(tmp_path / "a.npz")
    assert isinstance(source.arrays[0], np.memmap)  # type: ignore[attr-defined]


def test_npy_rows(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    np.save(tmp_path / "a.npy", array)
    dataset = packed(tmp_path, tmp_path / "a.npy")
    assert (dataset.fields[0].name, dataset.fields[0].shape) == ("x", (6,))
    np.testing.assert_array_equal(np.stack([sample["x"] for sample in dataset]), array)
    assert not (dataset.column("x", "offset") % 64).any()


@pytest.mark.parametrize("stride", [1, 3, 8, 11, None])
def test_windows_of_tokens(tmp_path: Path, stride: int | None) -> None:
    tokens = np.random.default_rng(0).integers(0, 50_000, 1000).astype(np.uint16)
    np.save(tmp_path / "a.npy", tokens)
    path = tmp_path / "a.slip"
    source = open_source(tmp_path / "a.npy", window=8, stride=stride)
    pack_source(source, path, shard_bytes=4096)
    assert list(verify_dataset(path)) == []
    dataset = slipstream.open_dataset(path)
    step = stride or 8
    assert len(dataset) == (1000 - 8) // step + 1
    for index in range(0, len(dataset), 7):
        expected = tokens[index * step : index * step + 8]
        np.testing.assert_array_equal(dataset[index]["tokens"], expected)
    assert dataset[0]["tokens"].flags.writeable
    if step < 8:
        data_bytes = sum(p.stat().st_size for p in path.glob("*.slip"))
        assert data_bytes < len(dataset) * (2 * step + 20) + 600 * len(list(path.glob("*.slip")))


def test_unsuitable_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 4)))
    with pytest.raises(UsageError, match="windows are cut from one 1-D integer array"):
        open_source(tmp_path / "a.npy", window=2)
    np.save(tmp_path / "b.npy", np.arange(3))
    with pytest.raises(UsageError, match="less than one window"):
        open_source(tmp_path / "b.npy", window=4)
    np.savez(tmp_path / "c.npz", x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(UsageError, match=r"different numbers of rows \(x 3, y 4\)"):
        open_source(tmp_path / "c.npz")
    np.save(tmp_path / "d.npy", np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(UsageError, match="cannot be read as"):
        open_source(tmp_path / "d.npy")
    (tmp_path / "e.npz").write_bytes(os.urandom(100))
    with pytest.raises(UsageError, match="cannot be read as"):
        open_source(tmp_path / "e.npz")
