"""Packing folders of pictures: what is stored, in which order, and what is left out."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import slipstream
from slipstream.errors import BadSource, UsageError
from slipstream.pack.pack import pack_source
from slipstream.pack.pictures import PictureOptions
from slipstream.pack.plan import check_apart
from slipstream.pack.sources.detect import open_source
from slipstream.store.reader import Store
from slipstream.store.verify import verify_dataset
from tests.pictures import jpeg, photo, pixels, png, turned_jpeg, write_flat

Fingerprint = Callable[[Path], dict[str, str]]


def test_class_folders(mixed_folder: Path, tmp_path: Path) -> None:
    report = pack_source(open_source(mixed_folder), tmp_path / "a.slip")
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert report.samples == len(dataset) == 12
    assert [field.name for field in dataset.fields] == ["image", "label", "key"]
    assert [sample["key"] for sample in dataset[:4]] == [
        "cat/420.JPEG",
        "cat/422.jpg",
        "cat/444.jpg",
        "cat/deep/progressive.jpg",
    ]
    coding = dict(
        zip((s["key"] for s in dataset), dataset.column("image", "coding").tolist(), strict=True)
    )
    assert [key for key, tiles in coding.items() if not tiles] == [
        "dog/cmyk.jpg",
        "newt/alpha.png",
        "newt/lossless.webp",
        "newt/palette.png",
        "newt/rgb.png",
    ]
    assert sum(report.kept.values()) == 1
    notes = Store(tmp_path / "a.slip").shard(0).notes()
    assert notes["source"] == [0, 12]
    assert [entry["sample"] for entry in notes["kept"]] == [4]
    assert not (tmp_path / "a.slip.partial").exists()


def test_jpegs_keep_their_bytes_about(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 6, width=400, height=300)
    report = pack_source(open_source(source), tmp_path / "a.slip")
    assert report.source_bytes is not None
    assert report.packed_bytes < 1.01 * report.source_bytes


def test_flat_folder_has_keys_only(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 3)
    (source / "readme.txt").write_text("x")
    report = pack_source(open_source(source), tmp_path / "a.slip")
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert list(dataset[0]) == ["image", "key"]
    assert dataset.classes is None
    assert report.remarks == ["files that are no pictures were left aside: 1 .txt"]


def test_folder_without_jpegs_is_of_kind_image(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.png").write_bytes(png(5, 4))
    pack_source(open_source(tmp_path / "p"), tmp_path / "a.slip")
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert dataset.fields[0].kind == "image"
    np.testing.assert_array_equal(dataset[0]["image"], pixels(png(5, 4)))


def test_workers_do_not_change_a_byte(
    mixed_folder: Path, tmp_path: Path, fingerprint: Fingerprint
) -> None:
    found = []
    for workers in (1, 2, 5):
        path = tmp_path / f"{workers}.slip"
        pack_source(open_source(mixed_folder), path, workers=workers, shard_bytes=12_000)
        found.append(fingerprint(path))
    assert len(found[0]) > 3
    assert found[0] == found[1] == found[2]


def test_shards_keep_to_their_size(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 20)
    report = pack_source(open_source(source), tmp_path / "a.slip", shard_bytes=20_000)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "a.slip").glob("*.slip"))]
    assert report.shards == len(sizes) > 3
    assert max(sizes) <= 20_000
    assert min(sizes[:-1]) > 10_000
    sources = [
        Store(tmp_path / "a.slip").shard(number).notes()["source"] for number in range(len(sizes))
    ]
    assert [pair[0] for pair in sources] == [0, *(pair[1] for pair in sources[:-1])]
    assert sources[-1][1] == 20


@pytest.fixture
def spoiled(tmp_path: Path) -> Path:
    """Ten pictures, four of them unreadable, each in its own way."""
    source = write_flat(tmp_path / "photos", 10)
    (source / "000.jpg").write_bytes(b"no picture at all")
    (source / "004.jpg").write_bytes(b"")
    (source / "005.jpg").write_bytes(jpeg()[:900])
    (source / "009.jpg").unlink()
    (source / "009.jpg").symlink_to("nowhere.jpg")
    return source


def test_bad_item_stops_the_pack_by_name(spoiled: Path, tmp_path: Path) -> None:
    with pytest.raises(BadSource, match=r"000\.jpg: cannot be decoded: .*--on-error skip"):
        pack_source(open_source(spoiled), tmp_path / "a.slip")
    assert not (tmp_path / "a.slip").exists()
    assert list((tmp_path / "a.slip.partial").glob("*.tmp")) == []


def test_bad_items_are_skipped_and_listed(spoiled: Path, tmp_path: Path) -> None:
    with pytest.raises(BadSource):
        pack_source(open_source(spoiled), tmp_path / "a.slip")
    report = pack_source(open_source(spoiled), tmp_path / "a.slip", on_error="skip")
    assert [entry["key"] for entry in report.skipped] == [f"00{k}.jpg" for k in (0, 4, 5, 9)]
    reasons = [entry["reason"] for entry in report.skipped]
    assert reasons[1] == "the file is empty"
    assert reasons[3] == "cannot be read: No such file or directory"
    assert all(reason.startswith("cannot be decoded") for reason in (reasons[0], reasons[2]))
    assert [sample["key"][:3] for sample in slipstream.open_dataset(tmp_path / "a.slip")] == [
        "001", "002", "003", "006", "007", "008",
    ]  # fmt: skip
    assert list(verify_dataset(tmp_path / "a.slip")) == []


def test_nothing_but_bad_items(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.jpg").write_bytes(b"x")
    with pytest.raises(BadSource, match="All 1 items"):
        pack_source(open_source(tmp_path / "p"), tmp_path / "a.slip", on_error="skip")
    assert not (tmp_path / "a.slip").exists()


def test_no_pictures(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No pictures in"):
        open_source(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        open_source(tmp_path / "nothing")


def test_destination_that_exists_is_left_alone(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 2)
    (tmp_path / "a.slip").mkdir()
    with pytest.raises(UsageError, match=r"exists and is not a packed dataset\. Choose"):
        pack_source(open_source(source), tmp_path / "a.slip")
    assert list((tmp_path / "a.slip").iterdir()) == []
    assert not (tmp_path / "a.slip.partial").exists()


def test_dataset_that_exists_is_told_by_name(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 1)
    pack_source(open_source(source), tmp_path / "a.slip")
    with pytest.raises(UsageError, match=r"is a packed dataset already\. Add to it with --append"):
        pack_source(open_source(source), tmp_path / "a.slip")
    with pytest.raises(UsageError, match=r"is a packed dataset already\. Choose another"):
        slipstream.pack_dataset([1, 2], tmp_path / "a.slip")
    with pytest.raises(UsageError, match="is a packed dataset already: there is nothing to pack"):
        open_source(tmp_path / "a.slip")


def test_destination_inside_the_source_is_refused(tmp_path: Path) -> None:
    for inside, place in ((tmp_path / "a.slip", "inside"), (tmp_path, "the source itself")):
        with pytest.raises(UsageError, match=f"is {place}.*Choose a destination outside"):
            check_apart(tmp_path, inside)
    check_apart(tmp_path / "photos", tmp_path / "photos.slip")


def test_arguments_of_pack_dataset_are_checked(tmp_path: Path) -> None:
    for dataset, options, message in (
        ("photos", {}, "slipstream pack photos"),
        (Path("photos"), {}, "slipstream pack photos"),
        ([1], {"shard_bytes": "64MB"}, "shard_bytes is '64MB', expected an integer"),
        ([1], {"workers": -1}, "workers is -1, expected 0 .* or more"),
        ([1], {"fields": "x"}, r"Give a list: fields=\['x'\]"),
    ):
        with pytest.raises(UsageError, match=message):
            slipstream.pack_dataset(dataset, tmp_path / "a.slip", **options)  # type: ignore[arg-type]


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "n.npy", np.arange(9))
    numbers = open_source(tmp_path / "n.npy")
    for options, name in (({"quality": 9}, "--quality"), ({"orient": True}, "--orient")):
        with pytest.raises(UsageError, match=f"has no pictures: leave {name} out"):
            pack_source(numbers, tmp_path / "a.slip", pictures=PictureOptions(**options))
    for options in ({"quality": 9}, {"orient": True}):
        with pytest.raises(UsageError, match=f"--{next(iter(options))} is for JPEGs"):
            PictureOptions(decoded=True, **options)
    with pytest.raises(UsageError, match="--stride needs --window"):
        open_source(tmp_path / "n.npy", stride=2)


def test_orient_counts_what_it_turned(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for name, width in (("even", 96), ("odd", 97)):
        (tmp_path / "photos" / f"{name}.jpg").write_bytes(turned_jpeg(3, width, 64))
    source = open_source(tmp_path / "photos")
    report = pack_source(source, tmp_path / "a.slip", pictures=PictureOptions(orient=True))
    assert (report.turned, report.unturned) == (1, 1)
    assert list(verify_dataset(tmp_path / "a.slip")) == []


def test_wrong_options_are_named(tmp_path: Path) -> None:
    source = open_source(write_flat(tmp_path / "photos", 1))
    for options, message in (
        ({"on_error": "stop"}, "on_error is 'stop'"),
        ({"shard_bytes": 10}, "Shards of 10 bytes"),
        ({"workers": 0}, "0 workers"),
    ):
        with pytest.raises(UsageError, match=message):
            pack_source(source, tmp_path / "a.slip", **options)  # type: ignore[arg-type]
    for options in ({"max_side": 0}, {"quality": 101}):
        with pytest.raises(UsageError):
            PictureOptions(**options)


def test_orientation_is_indexed_or_applied(tmp_path: Path) -> None:
    source = tmp_path / "photos"
    source.mkdir()
    for orientation in range(1, 9):
        (source / f"{orientation}.jpg").write_bytes(turned_jpeg(orientation))
    pack_source(open_source(source), tmp_path / "a.slip")
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert dataset.column("image", "orientation").tolist() == list(range(1, 9))
    pack_source(open_source(source), tmp_path / "b.slip", pictures=PictureOptions(orient=True))
    upright = slipstream.open_dataset(tmp_path / "b.slip")
    assert upright.column("image", "orientation").tolist() == [1] * 8
    assert [sample["image"].shape[:2] for sample in upright] == [(64, 96)] * 4 + [(96, 64)] * 4


def test_decoded_stores_pixels(mixed_folder: Path, tmp_path: Path) -> None:
    pack_source(
        open_source(mixed_folder), tmp_path / "a.slip", pictures=PictureOptions(decoded=True)
    )
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert dataset.fields[0].to_json() == {
        "name": "image", "kind": "array", "dtype": "|u1", "shape": None, "ndim": 3,
    }  # fmt: skip
    for sample in dataset:
        expected = pixels((mixed_folder / sample["key"]).read_bytes())
        np.testing.assert_array_equal(sample["image"], expected)


def test_max_side_shrinks_and_leaves_small_ones_alone(tmp_path: Path) -> None:
    source = tmp_path / "p"
    source.mkdir()
    (source / "large.jpg").write_bytes(jpeg(300, 200))
    (source / "large.png").write_bytes(png(200, 300, mode="P"))
    (source / "small.jpg").write_bytes(jpeg(60, 40))
    options = PictureOptions(max_side=100)
    pack_source(open_source(source), tmp_path / "a.slip", pictures=options)
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert [sample["image"].shape[:2] for sample in dataset] == [(67, 100), (100, 67), (40, 60)]
    np.testing.assert_array_equal(dataset[2]["image"], pixels(jpeg(60, 40)))
    near = np.asarray(photo(300, 200).resize((100, 67)), dtype=float)
    assert np.abs(dataset[0]["image"] - near).mean() < 10
    made_by = Store(tmp_path / "a.slip").manifest.made_by
    assert made_by["options"]["max_side"] == 100


def test_quality_makes_smaller_files_only(tmp_path: Path) -> None:
    source = tmp_path / "p"
    source.mkdir()
    (source / "fine.jpg").write_bytes(jpeg(200, 150, quality=95))
    (source / "poor.jpg").write_bytes(jpeg(200, 150, quality=10))
    pack_source(open_source(source), tmp_path / "a.slip", pictures=PictureOptions(quality=60))
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    assert len(dataset.raw(0, "image")) < 0.6 * len(jpeg(200, 150, quality=95))
    np.testing.assert_array_equal(dataset[1]["image"], pixels(jpeg(200, 150, quality=10)))


def test_manifest_names_neither_paths_nor_times(tmp_path: Path, fingerprint: Fingerprint) -> None:
    """The same files elsewhere, touched at another time, give the same bytes."""
    import os
    import shutil

    source = write_flat(tmp_path / "photos", 4)
    copy = shutil.copytree(source, tmp_path / "elsewhere" / "copy")
    os.utime(copy / "000.jpg", (1, 1))
    pack_source(open_source(source), tmp_path / "a.slip")
    pack_source(open_source(copy), tmp_path / "b.slip")
    assert fingerprint(tmp_path / "a.slip") == fingerprint(tmp_path / "b.slip")
    assert str(tmp_path).encode() not in (tmp_path / "a.slip" / "manifest.json").read_bytes()


def test_second_pack_at_the_same_time_is_refused(tmp_path: Path) -> None:
    import fcntl
    import os

    source = write_flat(tmp_path / "photos", 1)
    (tmp_path / "a.slip.partial").mkdir()
    lock = os.open(tmp_path / "a.slip.partial", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(UsageError, match="Another pack is at work"):
            pack_source(open_source(source), tmp_path / "a.slip")
    finally:
        os.close(lock)
    pack_source(open_source(source), tmp_path / "a.slip")


def test_packing_does_not_import_torch(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 1)
    script = (
        "import sys\n"
        "from slipstream.pack.pack import pack_source\n"
        "from slipstream.pack.sources.detect import open_source\n"
        f"pack_source(open_source({str(source)!r}), {str(tmp_path / 'a.slip')!r})\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
