"""Sources and moments that once made a pack lose, mix or double samples."""

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data
from PIL import Image

import slipstream
from slipstream import pack_dataset
from slipstream.errors import BadSource, UsageError
from slipstream.pack.export import export_dataset
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from slipstream.pack.sources.tar import _read_at
from slipstream.pack.sources.torch_dataset import open_torch
from slipstream.store.manifest import MANIFEST_LIMIT, serialize_manifest
from slipstream.store.reader import read_manifest
from slipstream.store.verify import verify_dataset
from tests.pictures import jpeg, write_flat

Fingerprint = Callable[[Path], dict[str, str]]


# going on with another dataset


class Numbers:
    """Arrays of one value; `bad` is an index that fails."""

    def __init__(self, value: int, bad: int = -1) -> None:
        self.value = value
        self.bad = bad

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, object]:
        if index == self.bad:
            raise RuntimeError("broken")
        return {"a": np.full(300, self.value), "n": index}


def test_another_dataset_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(BadSource, match="broken"):
        pack_dataset(Numbers(1, bad=33), tmp_path / "a.slip", shard_bytes=8192)
    with pytest.raises(UsageError, match="differs in: source files"):
        pack_dataset(Numbers(2), tmp_path / "a.slip", shard_bytes=8192)
    report = pack_dataset(Numbers(1), tmp_path / "a.slip", shard_bytes=8192)
    assert report.continued > 0
    assert {int(s["a"][0]) for s in slipstream.open_dataset(tmp_path / "a.slip")} == {1}


class Random(Numbers):
    """Never the same twice, as with random augmentation."""

    def __getitem__(self, index: int) -> dict[str, object]:
        super().__getitem__(index)
        return {"a": np.random.default_rng().normal(size=300), "n": index}


def test_random_samples_do_not_hinder_going_on(tmp_path: Path) -> None:
    with pytest.raises(BadSource, match="broken"):
        pack_dataset(Random(1, bad=33), tmp_path / "a.slip", shard_bytes=8192)
    report = pack_dataset(Random(1), tmp_path / "a.slip", shard_bytes=8192)
    assert 0 < report.continued < report.samples == 40


class OneShot(torch.utils.data.IterableDataset):
    """A stream that cannot start anew."""

    def __init__(self, *samples: dict[str, int]) -> None:
        self.stream = iter(samples)

    def __iter__(self) -> Iterator[dict[str, int]]:
        return self.stream


def test_stream_that_starts_once_keeps_its_first_sample(tmp_path: Path) -> None:
    pack_dataset(OneShot(*({"n": k} for k in range(10))), tmp_path / "a.slip")
    assert [s["n"] for s in slipstream.open_dataset(tmp_path / "a.slip")] == list(range(10))


def test_streams_are_told_apart_by_their_first_sample() -> None:
    digests = [
        open_torch(OneShot({"n": first}, {"n": 0}), fields=None, workers=0).digest
        for first in (1, 1, 2)
    ]
    assert digests[0] == digests[1] != digests[2]


# append

# Kills its own process at the n-th removal after the new manifest is in its place.
KILLER = """
import os, signal, sys
from slipstream.pack.export import export_dataset
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source

src, dst, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
source, is_committed = open_source(src), False

def watch(event, args):
    global left, is_committed
    if is_committed and event in ("os.remove", "os.rmdir") and str(args[0]).startswith(dst):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    if event == "os.rename" and str(args[1]) == dst + "/manifest.json":
        is_committed = True

sys.addaudithook(watch)
pack_source(source, dst, append=True, workers=1, shard_bytes=4096)
"""


def _classes(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(40, 40, number))
    return folder


def test_append_with_classes_killed_after_its_commit(
    tmp_path: Path, fingerprint: Fingerprint
) -> None:
    first = _classes(tmp_path / "first", "cat/1.jpg", "dog/1.jpg")
    second = _classes(tmp_path / "second", "ant/1.jpg", "dog/2.jpg", "dog/3.jpg")
    kills = 0
    for steps in range(20):
        dst = tmp_path / f"{steps}.slip"
        pack_source(open_source(first), dst)
        command = [sys.executable, "-c", KILLER, str(second), str(dst), str(steps)]
        code = subprocess.run(command, check=False, timeout=60).returncode
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        whole = fingerprint(dst)
        report = pack_source(open_source(second), dst, append=True, shard_bytes=4096)
        assert report.samples == report.continued == 3
        assert fingerprint(dst) == whole
        assert not dst.with_name(dst.name + ".partial").exists()
        assert len(slipstream.open_dataset(dst)) == 5
    assert kills >= 2


class Labelled:
    """Numbers of three classes."""

    classes = ("a", "b", "c")

    def __init__(self, *labels: Any) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": index, "label": self.labels[index]}


def test_append_keeps_unlabelled_and_refuses_other_numbers(tmp_path: Path) -> None:
    def append(*labels: Any, on_error: str = "raise") -> list[dict[str, str]]:
        source = open_torch(Labelled(*labels), fields=None, workers=0)
        options: dict[str, Any] = {"append": dst.exists(), "on_error": on_error}
        return pack_source(source, dst, **options).skipped

    dst = tmp_path / "a.slip"
    append(-1, 0, 2)
    append(-1, 0, np.int64(2))
    with pytest.raises(BadSource, match="1: label 7: expected 0 to 2, or -1 for none"):
        append(0, 7)
    skipped = append(1, 3, -2, "b", on_error="skip")
    assert [entry["key"] for entry in skipped] == ["1", "2", "3"]
    assert "label -2" in skipped[1]["reason"]
    assert [s["label"] for s in slipstream.open_dataset(dst)] == [-1, 0, 2, -1, 0, 2, 1]


def test_append_works_next_to_what_a_link_leads_to(tmp_path: Path) -> None:
    source = _classes(tmp_path / "photos", "cat/1.jpg")
    (tmp_path / "disk").mkdir()
    pack_source(open_source(source), tmp_path / "disk" / "a.slip")
    (tmp_path / "link.slip").symlink_to(tmp_path / "disk" / "a.slip")
    places = []

    def look(done: int, total: int | None) -> None:
        places.extend(path.parent.name for path in tmp_path.rglob("*.partial"))

    pack_source(open_source(source), tmp_path / "link.slip", append=True, progress=look)
    assert places == ["disk"]
    assert len(slipstream.open_dataset(tmp_path / "link.slip")) == 2
    assert (tmp_path / "link.slip").is_symlink()


def test_append_overwrites_no_shard(tmp_path: Path) -> None:
    source, dst = _classes(tmp_path / "photos", "cat/1.jpg"), tmp_path / "a.slip"
    pack_source(open_source(source), dst)
    before = read_manifest(dst)
    (dst / "00000.slip").rename(dst / "00001.slip")
    entry = replace(before.shards[0], file="00001.slip")
    (dst / "manifest.json").write_bytes(serialize_manifest(replace(before, shards=(entry,))))
    with pytest.raises(UsageError, match=r"is called 00001\.slip, a name that new shards need"):
        pack_source(open_source(source), dst, append=True)
    assert list(verify_dataset(dst)) == []


# tar


def _tar(path: Path, *names: str, form: int = tarfile.GNU_FORMAT) -> list[int]:
    """Members with a byte more each; returns where each of them starts."""
    starts = []
    with tarfile.open(path, "w", format=form) as tar:
        for number, name in enumerate(names):
            starts.append(tar.offset)
            member = tarfile.TarInfo(name)
            member.size = 600 + number
            tar.addfile(member, io.BytesIO(bytes([number]) * member.size))
    return starts


def test_damaged_tar_header_is_not_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    start = _tar(path, *(f"{k}.bin" for k in range(10)))[5]
    data = bytearray(path.read_bytes())
    data[start + 150] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadSource, match=rf"a\.tar is cut or damaged: at byte {start} "):
        open_source(path)


@pytest.mark.parametrize("behind", [100, 512, 700, 1100])
def test_cut_tar_is_refused(tmp_path: Path, behind: int) -> None:
    path = tmp_path / "a.tar"
    start = _tar(path, *(f"{k}.bin" for k in range(10)))[5]
    path.write_bytes(path.read_bytes()[: start + behind])
    with pytest.raises(BadSource, match=r"a\.tar is cut or damaged .*byte|at byte"):
        open_source(path)


def test_tar_without_end_mark_is_remarked(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    start = _tar(path, *(f"{k}.bin" for k in range(10)))[5]
    path.write_bytes(path.read_bytes()[:start])
    report = pack_source(open_source(path), tmp_path / "a.slip")
    assert report.samples == 5
    assert report.remarks == ["a.tar has no end mark: if it was cut, samples are missing"]


def test_tars_put_behind_each_other_are_remarked(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    _tar(path, "a.bin")
    assert open_source(path).remarks == []
    path.write_bytes(path.read_bytes() * 2)
    assert open_source(path).remarks == ["a.tar goes on behind its end mark: that was left aside"]


def _sparse_header(tar: Path, start: int) -> None:
    """Turn a member into GNU tar's sparse kind: 600 bytes of data behind a hole of 4096."""
    data = bytearray(tar.read_bytes())
    header = data[start : start + 512]
    header[156:157] = b"S"
    header[386:410] = b"%011o\0%011o\0" % (4096, 600)
    header[483:495] = b"%011o\0" % 4696
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 0x20)
    data[start : start + 512] = header
    tar.write_bytes(data)


def test_sparse_members_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    start = _tar(path, "a.bin", "b.bin")[0]
    _sparse_header(path, start)
    with pytest.raises(BadSource, match=r"^a: \.bin is a sparse member"):
        pack_source(open_source(path), tmp_path / "a.slip")
    report = pack_source(open_source(path), tmp_path / "b.slip", on_error="skip")
    assert [entry["key"] for entry in report.skipped] == ["a"]
    assert slipstream.open_dataset(tmp_path / "b.slip")[0]["bin"] == b"\1" * 601
    _tar(path, "a.bin")
    _sparse_header(path, 0)
    with pytest.raises(BadSource, match=r"No sample of .* a: \.bin is a sparse member"):
        open_source(path)


def test_member_that_is_there_twice(tmp_path: Path) -> None:
    _tar(tmp_path / "a.tar", "a.bin", "b.bin", "b.BIN", "c.bin")
    report = pack_source(open_source(tmp_path / "a.tar"), tmp_path / "a.slip", on_error="skip")
    assert report.skipped == [{"key": "b", "reason": ".bin is there twice"}]
    assert report.samples == 2


def test_tar_that_became_shorter(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert _read_at(str(tmp_path / "a"), 1, 2) == b"bc"
    with pytest.raises(ValueError, match="ends too early"):
        _read_at(str(tmp_path / "a"), 1, 3)


@pytest.mark.long
def test_members_beyond_what_one_read_gives(tmp_path: Path) -> None:
    """Takes no room on disk, but 4 GiB of memory."""
    path = tmp_path / "big"
    size = (1 << 31) + 10
    with path.open("wb") as file:
        file.truncate(size)
        os.pwrite(file.fileno(), b"end", size - 3)
    data = _read_at(str(path), 0, size)
    assert len(data) == size
    assert data[-4:] == b"\0end"


# datasets of files


class ImageFolder:
    """What torchvision's looks like from outside."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.samples = [(str(path), 0) for path in sorted(root.rglob("*.jpg"))]
        self.loader = Image.open
        self.classes = ["cat"]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        path, label = self.samples[index]
        return self.loader(path), label


class Grandchild(ImageFolder):
    """Changes nothing about the items."""


class Cropped(Grandchild):
    """Makes something else of the files."""

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        picture, label = super().__getitem__(index)
        return picture.crop((0, 0, 10, 8)), label + 1, "caption"


def test_subclass_with_its_own_items_is_packed_from_them(tmp_path: Path) -> None:
    root = _classes(tmp_path / "photos", "cat/1.jpg")
    pack_dataset(Cropped(root), tmp_path / "a.slip", fields=["image", "number", "text"])
    sample = slipstream.open_dataset(tmp_path / "a.slip")[0]
    assert sample["image"].shape == (8, 10, 3)
    assert (sample["number"], sample["text"]) == (1, "caption")
    same_name = type("ImageFolder", (ImageFolder,), {"__getitem__": lambda self, index: (1, 2)})
    for kind, expected in (
        (ImageFolder, "picture dataset"),
        (Grandchild, "picture dataset"),
        (Cropped, "torch dataset"),
        (same_name, "torch dataset"),
    ):
        assert open_torch(kind(root), fields=None, workers=0).kind == expected


# limits


class Wide:
    """More fields than the format allows."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> dict[str, int]:
        return {f"f{k}": k for k in range(257)}


def test_limits_of_readers_hold_for_writers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="got 257, expected 1 to 256 fields"):
        pack_dataset(Wide(), tmp_path / "a.slip")
    many = Labelled(0, 1)
    many.classes = ("a", "b" * (64 << 20))  # type: ignore[assignment]
    with pytest.raises(UsageError, match=r"too large: got .* expected at most 67108864 bytes"):
        pack_dataset(many, tmp_path / "a.slip")
    source = open_torch([{"n": 1}], fields=None, workers=0)
    spec = replace(source.fields[0], name="n" * 65)
    source = replace(source, layout=replace(source.layout, fields=(spec,)))  # type: ignore[type-var]
    with pytest.raises(UsageError, match=r"bad field name: .* at most 64 letters"):
        pack_source(source, tmp_path / "a.slip")
    assert list(tmp_path.iterdir()) == []


def test_limits_are_checked_again_when_shards_are_known(tmp_path: Path) -> None:
    labelled = Labelled(0)
    pack_dataset(labelled, tmp_path / "small.slip")
    manifest = read_manifest(tmp_path / "small.slip")
    room = MANIFEST_LIMIT - len(serialize_manifest(replace(manifest, shards=())))
    labelled.classes = ("a" * (room - 20), "b", "c")  # type: ignore[assignment]
    with pytest.raises(UsageError, match=r"too large: got .* expected at most 67108864 bytes"):
        pack_dataset(labelled, tmp_path / "a.slip")
    assert (tmp_path / "a.slip.partial" / "00000.slip").is_file()
    assert not (tmp_path / "a.slip").exists()


def test_number_too_large_for_a_float(tmp_path: Path) -> None:
    samples = [{"x": 1.0}, {"x": 10**400}, {"x": 2.0}]
    report = pack_dataset(samples, tmp_path / "a.slip", on_error="skip")
    assert [entry["key"] for entry in report.skipped] == ["1"]
    assert [s["x"] for s in slipstream.open_dataset(tmp_path / "a.slip")] == [1.0, 2.0]


def test_sides_that_readers_refuse(tmp_path: Path) -> None:
    samples = [{"x": np.zeros((3, 0))}, {"x": np.zeros(((1 << 40) + 1, 0))}]
    report = pack_dataset(samples, tmp_path / "a.slip", fields={"x": "ragged"}, on_error="skip")
    (entry,) = report.skipped
    assert "the format allows 1099511627776 a side" in entry["reason"]
    assert slipstream.open_dataset(tmp_path / "a.slip")[0]["x"].shape == (3, 0)


def test_what_follows_a_jpegs_end_is_reported(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 3)
    with (source / "001.jpg").open("ab") as file:
        file.write(b"a second picture" * 100)
    report = pack_source(open_source(source), tmp_path / "x.slip")
    assert (report.samples, report.trailing) == (3, 1)


def test_a_pipe_among_the_pictures_does_not_hang(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 2)
    os.mkfifo(source / "pipe.jpg")
    report = pack_source(open_source(source), tmp_path / "x.slip", on_error="skip")
    assert report.samples == 2


def test_export_overwrites_nothing(tmp_path: Path) -> None:
    keys = ["a.jpg", "a-2.jpg", "a.jpg"]
    samples = [{"x": np.full((2, 2), i, np.uint8), "key": key} for i, key in enumerate(keys)]
    pack_dataset(samples, tmp_path / "x.slip")
    export_dataset(tmp_path / "x.slip", tmp_path / "back")
    arrays = sorted((tmp_path / "back").rglob("*.npy"))
    assert sorted(int(np.load(path)[0, 0]) for path in arrays) == [0, 1, 2]


def test_a_linked_class_folder_is_a_class(tmp_path: Path) -> None:
    write_flat(tmp_path / "photos" / "cat", 2)
    (tmp_path / "photos" / "kitten").symlink_to(tmp_path / "photos" / "cat")
    (tmp_path / "photos" / "cat" / "loop").symlink_to(tmp_path / "photos")
    report = pack_source(open_source(tmp_path / "photos"), tmp_path / "x.slip")
    assert report.classes == ("cat", "kitten")
    assert report.samples == 4


def test_tars_beside_pictures_are_ambiguous(tmp_path: Path) -> None:
    folder = write_flat(tmp_path / "photos", 2)
    with tarfile.open(folder / "backup.tar", "w") as tar:
        tar.add(folder / "000.jpg", "000.jpg")
    with pytest.raises(UsageError, match="which are meant"):
        open_source(folder)
