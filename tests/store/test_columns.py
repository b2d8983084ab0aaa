"""Rows of index columns, gathered from many shards at once, are those of the shards."""

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipstream
from slipstream import _native
from slipstream.errors import CorruptDataset, UsageError
from slipstream.pack.pack import pack_dataset
from slipstream.store.dataset import Dataset

COUNT = 500


class Samples:
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, k: int) -> dict[str, Any]:
        return {"number": k * k - 7, "text": "x" * (k % 97), "real": k / 3}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "many.slip"
    pack_dataset(Samples(), path, shard_bytes=4096)
    return path


def opened(path: Path) -> Dataset:
    dataset = slipstream.open_dataset(path)
    assert isinstance(dataset, Dataset)
    return dataset


def check(dataset: Dataset, numbers: Any) -> None:
    rows = dataset.rows("text", numbers)
    store, owners = dataset._store, []
    for k, number in enumerate(numbers):
        shard, local = store.find(int(number))
        owners.append(store._shards.index(shard))
        assert rows.maps[rows.map_ids[k]] is shard.map
        for name, column in (
            ("offset", rows.offsets),
            ("length", rows.lengths),
            ("crc", rows.checksums),
        ):
            assert column is not None
            assert column[k] == shard.column(store.numbers["text"], name)[local]
    used = sorted(set(owners))
    assert [id(data) for data in rows.maps] == [id(store.shard(s).map) for s in used]
    assert rows.map_ids.tolist() == [used.index(owner) for owner in owners]
    dtypes = [a.dtype for a in (rows.map_ids, rows.offsets, rows.lengths)]
    assert dtypes == [np.uint32, np.uint64, np.uint64]
    assert rows.checksums is not None and rows.checksums.dtype == np.uint32
    assert rows.codings is None
    values = dataset.column("number", "value", numbers)
    assert values.dtype == np.int64
    assert values.tolist() == [int(k) ** 2 - 7 for k in numbers]


def test_rows_are_those_of_the_shards(many: Path) -> None:
    rng = np.random.default_rng(0)
    dataset = opened(many)
    assert len(dataset._store.manifest.shards) > 10
    for count in (1, 2, 30, 256):
        check(dataset, rng.integers(0, COUNT, count))
    check(dataset, range(COUNT))
    check(dataset, rng.integers(0, COUNT, 40)[::2].astype(np.uint16))
    assert dataset.column("real", "value").tolist() == [k / 3 for k in range(COUNT)]


def test_more_samples_than_are_gathered_at_once_with_the_gil(many: Path) -> None:
    numbers = np.random.default_rng(1).integers(0, COUNT, 20_000)
    values = opened(many).column("number", "value", numbers)
    np.testing.assert_array_equal(values, numbers**2 - 7)


def test_values_are_written_where_they_shall_lie(many: Path) -> None:
    dataset = opened(many)
    out: list[Any] = [np.zeros(3), np.zeros(3, dtype=np.int64)]
    dataset.read_values(["real", "number"], [499, 0, -1], out)
    assert out[0].tolist() == [499 / 3, 0, 499 / 3]
    assert out[1].tolist() == [499**2 - 7, -7, 499**2 - 7]
    with pytest.raises(ValueError, match="bytes of out has 24 entries, expected 32"):
        dataset.read_values(["real", "number"], [1, 2, 3, 4], out)
    out[0].flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        dataset.read_values(["real", "number"], [1, 2, 3], out)


def test_numbers_outside_are_refused(many: Path) -> None:
    store = opened(many)._store
    with pytest.raises(IndexError, match="samples -1 to 7 of a dataset of 500"):
        store.rows(1, [3, -1, 7])
    with pytest.raises(IndexError, match="samples 2 to 500 of a dataset of 500"):
        store.column(0, "value", [500, 2])
    with pytest.raises(UsageError, match="1-D integer array, got float64"):
        store.rows(1, [0.5])
    with pytest.raises(KeyError, match='field "number" has no column "crc"'):
        store.column(0, "crc", [1])
    assert store.column(0, "value", []).dtype == np.int64
    assert store.rows(1, []).maps == []


@pytest.mark.parametrize("view", [slice(None), slice(10, 90), slice(None, None, -3)])
def test_views_count_their_own_samples(many: Path, view: slice) -> None:
    dataset, expected = opened(many)[view], list(range(COUNT))[view]
    last = len(expected) - 1
    numbers = [0, last, -1, -len(expected), 5]
    values = dataset.column("number", "value", numbers)
    assert values.tolist() == [expected[k] ** 2 - 7 for k in numbers]
    for outside in (last + 1, -last - 2):
        with pytest.raises(IndexError, match=f"outside a dataset of {last + 1}"):
            dataset.column("number", "value", [0, outside])


def test_what_is_given_is_left_alone(many: Path) -> None:
    numbers = np.array([4, -1, 7])
    chosen = opened(many).subset(numbers)
    assert numbers.tolist() == [4, -1, 7]
    numbers[:] = 0
    assert chosen.column("number", "value").tolist() == [9, 499**2 - 7, 42]
    numbers = np.array([4, 1, 7])
    chosen = opened(many).subset(numbers)
    numbers[:] = 0
    assert chosen.column("number", "value").tolist() == [9, -6, 42]


def test_threads_open_shards_together(many: Path) -> None:
    start, wrong = threading.Barrier(4), []

    def read(seed: int, dataset: Dataset) -> None:
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(20):
            numbers = rng.integers(0, COUNT, 64)
            values = dataset.column("number", "value", numbers)
            if (values != numbers**2 - 7).any():
                wrong.append(seed)

    for seed in range(5):
        dataset = opened(many)
        threads = [threading.Thread(target=read, args=(4 * seed + k, dataset)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_damaged_column_is_refused_every_time(tmp_path: Path) -> None:
    path = tmp_path / "a.slip"
    pack_dataset(Samples(), path, shard_bytes=4096)
    shard = opened(path)._store.shard(2)
    place = shard.columns[0, 8].offset
    first, count = shard.first, shard.samples
    data = bytearray(Path(shard.where).read_bytes())
    data[place] ^= 1
    Path(shard.where).write_bytes(data)
    dataset = opened(path)
    for _ in range(2):
        with pytest.raises(CorruptDataset, match='column "value" of field "number": checksum'):
            dataset.column("number", "value")
    others = [*range(first), *range(first + count, COUNT)]
    assert dataset.column("number", "value", others).tolist() == [k * k - 7 for k in others]
    check_text = dataset.rows("text", [first])
    assert check_text.lengths.tolist() == [first % 97]


def test_maps_go_with_their_dataset(many: Path) -> None:
    dataset = opened(many)
    rows = dataset.rows("text", range(COUNT))
    gone = weakref.ref(dataset._store)
    kept = weakref.ref(rows.maps[0])
    gc.disable()
    try:
        del dataset
        assert gone() is None and kept() is not None
        del rows
        assert kept() is None
    finally:
        gc.enable()


def test_the_native_part_checks_what_it_is_given() -> None:
    columns = _native.ShardColumns(np.array([0, 2, 2, 5]), [8, 1])
    ids, out = np.empty(1, dtype=np.uint32), [np.empty(1), np.empty(1, dtype=np.uint8)]
    assert columns.gather(np.array([4]), ids, out) == ([2], [])
    right = [np.arange(3.0), np.arange(3, dtype=np.uint8)]
    for wrong in ([], right[:1], [*right, right[0]], right[::-1], [right[0][:2], right[1]]):
        with pytest.raises(ValueError, match="column"):
            columns.open(2, "owner", wrong)
    with pytest.raises(IndexError):
        columns.open(3, "owner", right)
    columns.open(2, "owner", right)
    assert columns.gather(np.array([4]), ids, out) == ([], ["owner"])
    assert (ids[0], out[0][0], out[1][0]) == (0, 2.0, 2)
    for bad in ([], out[:1], [*out, out[0]], out[::-1]):
        with pytest.raises(ValueError, match=r"column|out"):
            columns.gather(np.array([4]), ids, bad)
    with pytest.raises(ValueError, match="ids"):
        columns.gather(np.array([4, 4]), ids, out)
    for firsts in ([], [1, 2], [0, 2, 1]):
        with pytest.raises(ValueError, match="firsts"):
            _native.ShardColumns(np.array(firsts, dtype=np.int64), [8])
