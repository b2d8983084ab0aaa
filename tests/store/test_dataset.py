"""Reading packed datasets the way a training script does."""

import gc
import multiprocessing
import os
import pickle
import resource
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch.utils.data

import slipstream
from slipstream import _native
from slipstream.errors import CorruptDataset, UsageError
from slipstream.pack.pack import pack_dataset, pack_source
from slipstream.pack.sources.detect import open_source
from slipstream.store import mapping
from slipstream.store.format import Column, Footer, build_directory, build_footer, build_header
from slipstream.store.manifest import Manifest, ShardEntry, serialize_manifest
from slipstream.store.schema import NOTES_COLUMN, SHARD_ITSELF, Field
from tests.conftest import EveryKind
from tests.pictures import pixels, write_flat


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dataset") / "kinds.slip"
    pack_dataset(EveryKind(), path, fields=EveryKind.KINDS)
    return path


def test_every_kind_comes_back(kinds: Path) -> None:
    dataset = slipstream.open_dataset(kinds)
    assert len(dataset) == EveryKind.length
    for index, sample in enumerate(dataset):
        for name, value in EveryKind()[index].items():
            np.testing.assert_array_equal(sample[name], value)
            assert type(sample[name]) is type(value)
    assert dataset[1]["fixed"].flags.writeable
    assert dataset[1]["ragged"].dtype == np.int16


def test_pictures_equal_pillow(mixed_dataset: Path, mixed_folder: Path) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)
    assert dataset.classes == ("cat", "dog", "newt")
    for sample in dataset:
        expected = pixels((mixed_folder / sample["key"]).read_bytes())
        np.testing.assert_array_equal(sample["image"], expected)
        assert sample["key"].startswith(dataset.classes[sample["label"]])


def test_numbers_may_be_negative_and_are_checked(kinds: Path) -> None:
    dataset = slipstream.open_dataset(kinds)
    assert dataset[-1]["whole"] == dataset[4]["whole"] == 2
    assert dataset[np.int64(1)]["whole"] == -1
    for index in (5, -6):
        with pytest.raises(IndexError):
            dataset[index]
    with pytest.raises(UsageError, match="got str"):
        dataset["whole"]  # type: ignore[call-overload]


def test_slices_are_views(kinds: Path) -> None:
    dataset = slipstream.open_dataset(kinds)
    view = dataset[1:5][::2]
    assert [sample["whole"] for sample in view] == [-1, 1]
    assert view[-1]["whole"] == 1
    assert len(dataset[4:2]) == 0
    assert [sample["whole"] for sample in dataset[::-1]] == [2, 1, 0, -1, -2]
    chosen = dataset[1:].subset([3, 0, 0, -1])
    assert [sample["whole"] for sample in chosen] == [2, -1, -1, 2]
    assert chosen.column("whole", "value").tolist() == [2, -1, -1, 2]
    with pytest.raises(IndexError):
        dataset[1:].subset([4])


def test_several_at_once(kinds: Path) -> None:
    dataset = slipstream.open_dataset(kinds)
    assert [sample["whole"] for sample in dataset.__getitems__([3, 1, -1])] == [1, -1, 2]


def test_chosen_fields_only(kinds: Path) -> None:
    dataset = slipstream.open_dataset(kinds, fields=["whole", "text"])
    assert list(dataset[2]) == ["whole", "text"]
    with pytest.raises(UsageError, match=r'no field "nothing"\. Its fields: fixed, ragged'):
        slipstream.open_dataset(kinds, fields=["nothing"])


def test_raw_access(kinds: Path, mixed_dataset: Path) -> None:
    dataset = slipstream.open_dataset(kinds)
    raw = dataset.raw(3, "raw")
    assert (bytes(raw), raw.readonly) == (b"\0\1\2", True)
    assert dataset.column("real", "value", [3, 0]).tolist() == [1.0, 0.0]
    with pytest.raises(UsageError, match="column"):
        dataset.raw(0, "whole")
    with pytest.raises(UsageError, match=r'no column "width"\. Its columns: offset, length, crc\.'):
        dataset.column("raw", "width")
    pictures = slipstream.open_dataset(mixed_dataset)
    numbers = [11, 0, 5, 5]
    rows = pictures.rows("image", numbers)
    for k, number in enumerate(numbers):
        start = int(rows.offsets[k])
        data = bytes(rows.maps[rows.map_ids[k]][start : start + int(rows.lengths[k])])
        assert data == bytes(pictures.raw(number, "image"))
        assert _native.crc32c(data) == rows.checksums[k]
    assert len(rows.maps) == len(set(rows.map_ids.tolist())) > 1
    assert pictures.rows("image", []).maps == []


def test_pickle_is_small_and_opens_again(mixed_dataset: Path) -> None:
    dataset = slipstream.open_dataset(mixed_dataset)
    dataset[0]
    data = pickle.dumps(dataset[2:9])
    assert len(data) < 500
    again = pickle.loads(data)
    assert len(again) == 7
    assert again[0]["key"] == dataset[2]["key"]


def test_pickle_notices_another_dataset(tmp_path: Path, kinds: Path) -> None:
    path = tmp_path / "a.slip"
    pack_dataset(EveryKind(), path, fields=EveryKind.KINDS)
    data = pickle.dumps(slipstream.open_dataset(path))
    (path / "manifest.json").unlink()
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    pack_dataset(EveryKind(), path, fields=["whole", "real"])
    with pytest.raises(UsageError, match="has changed"):
        pickle.loads(data)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("cache", [None, "ram"])
def test_torch_loader_with_workers(mixed_dataset: Path, method: str, cache: str | None) -> None:
    dataset = slipstream.open_dataset(mixed_dataset, fields=["label", "key"], cache=cache)
    assert dataset[0]["key"] == "cat/420.JPEG"
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=5,
        num_workers=2,
        multiprocessing_context=multiprocessing.get_context(method),
    )
    batches = list(loader)
    assert [key for batch in batches for key in batch["key"]] == [s["key"] for s in dataset]
    assert torch.cat([batch["label"] for batch in batches]).tolist() == [0] * 4 + [1] * 4 + [2] * 4


@pytest.mark.slow  # torch waits five seconds for a worker that has raised
def test_error_in_a_worker_keeps_its_class(tmp_path: Path) -> None:
    pack_dataset(EveryKind(), tmp_path / "a.slip", fields=["text", "raw"])
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    place = int(dataset.rows("text", [3]).offsets[0])
    _flip(tmp_path / "a.slip" / "00000.slip", place)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)
    with pytest.raises(CorruptDataset, match="payload checksum does not match"):
        list(loader)
    gc.collect()


def test_damaged_payload_is_never_returned(tmp_path: Path, mixed_folder: Path) -> None:
    path = tmp_path / "a.slip"
    pack_source(open_source(mixed_folder), path)
    for number in (0, 9):
        rows = slipstream.open_dataset(path).rows("image", [number])
        place = int(rows.offsets[0] + rows.lengths[0] // 2)
        _flip(path / "00000.slip", place)
        dataset = slipstream.open_dataset(path)
        with pytest.raises(CorruptDataset, match=f'sample {number}, field "image"'):
            dataset[number]
        assert dataset[1]["image"].ndim == 3
        _flip(path / "00000.slip", place)
    assert len(list(slipstream.open_dataset(path))) == 12


def test_missing_and_cut_shards(tmp_path: Path) -> None:
    path = tmp_path / "a.slip"
    pack_dataset(EveryKind(), path, fields=["whole"])
    shard = path / "00000.slip"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(CorruptDataset, match="wrong file size"):
        slipstream.open_dataset(path)[0]
    shard.write_bytes(b"")
    with pytest.raises(CorruptDataset, match="wrong file size"):
        slipstream.open_dataset(path)[0]
    shard.unlink()
    with pytest.raises(CorruptDataset, match="shard is missing"):
        slipstream.open_dataset(path)[0]


def test_no_dataset_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a packed dataset"):
        slipstream.open_dataset(tmp_path)
    (tmp_path / "a.slip.partial").mkdir()
    with pytest.raises(UsageError, match="unfinished pack: repeat the pack command"):
        slipstream.open_dataset(tmp_path / "a.slip")
    with pytest.raises(UsageError, match=r"Give a list: fields=\['n'\]"):
        slipstream.open_dataset(tmp_path, fields="n")
    (tmp_path / "00000.slip").write_bytes(b"")
    with pytest.raises(UsageError, match=r"is a file\. Give the folder"):
        slipstream.open_dataset(tmp_path / "00000.slip")
    with pytest.raises(UsageError, match='cache is None or "ram"'):
        slipstream.open_dataset(tmp_path, cache="disk")


def test_ram_cache_survives_the_files(tmp_path: Path) -> None:
    """Bytes stay readable and right after the file is gone from its folder."""
    source = write_flat(tmp_path / "photos", 6)
    pack_source(open_source(source), tmp_path / "a.slip")
    dataset = slipstream.open_dataset(tmp_path / "a.slip", cache="ram")
    (tmp_path / "a.slip" / "00000.slip").unlink()
    np.testing.assert_array_equal(dataset[3]["image"], pixels((source / "003.jpg").read_bytes()))


def test_ram_cache_without_the_right_to_lock(tmp_path: Path) -> None:
    """`ulimit -l 0` and no privilege: an anonymous copy takes the place of the lock."""
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 64)

    def work(queue: "multiprocessing.SimpleQueue[object]") -> None:
        mapped, expected = mapping.map_file(path), path.read_bytes()
        if os.getuid() == 0:
            os.setuid(65534)  # root may lock whatever the limit says
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        kept = mapping.keep_in_memory(mapped, may_copy=True)
        shared = mapping.keep_in_memory(mapped, may_copy=False)
        queue.put((kept is mapped, shared is mapped, bytes(kept) == expected))

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert queue.get() == (False, True, True)


def test_thousands_of_shards_do_not_use_up_descriptors(tmp_path: Path) -> None:
    """Random access over more shards than the process may have open files."""
    count = 400
    _write_many(tmp_path / "many.slip", shards=count, samples=2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        dataset = slipstream.open_dataset(tmp_path / "many.slip")
        assert sum(sample["label"] for sample in dataset) == count
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_million_samples_open_at_once(tmp_path: Path) -> None:
    _write_many(tmp_path / "large.slip", shards=40, samples=250_000)
    tracemalloc.start()
    begin = time.perf_counter()
    dataset = slipstream.open_dataset(tmp_path / "large.slip")
    count = len(dataset)
    opened_s = time.perf_counter() - begin
    values = [dataset[i]["label"] for i in range(249_999, count, 250_000)]
    view = dataset[5_000_000:]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 10_000_000
    assert opened_s < 0.5
    assert peak < 2 << 20
    assert values == [249_999] * 40
    assert len(pickle.dumps(view)) < 500


def _write_many(path: Path, *, shards: int, samples: int) -> None:
    """Shards of one integer field with the values 0, 1, 2, …, written straight from the format."""
    path.mkdir()
    values = np.arange(samples, dtype="<i8").tobytes()
    notes = b'{"kept":[],"skipped":[],"source":[0,1]}'
    notes_at = 32 + 64 + len(values)
    directory = build_directory(
        [
            Column(0, 8, 32 + 64, len(values), _native.crc32c(values)),
            Column(SHARD_ITSELF, NOTES_COLUMN, notes_at, len(notes), _native.crc32c(notes)),
        ]
    )
    entries = []
    for number in range(shards):
        header = build_header(number)
        index_bytes = 64 + len(values) + len(notes)
        crcs = (_native.crc32c(directory), _native.crc32c(header))
        footer = build_footer(Footer(32, index_bytes, samples, 32, 2, *crcs))
        data = header + directory + values + notes + footer
        (path / f"{number:05d}.slip").write_bytes(data)
        crc = int.from_bytes(footer[52:56], "little")
        entries.append(ShardEntry(f"{number:05d}.slip", samples, len(data), crc))
    manifest = Manifest((Field("label", "int"),), tuple(entries))
    (path / "manifest.json").write_bytes(serialize_manifest(manifest))


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
