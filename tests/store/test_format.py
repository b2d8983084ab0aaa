"""The parsers of header, footer, directory and manifest against damage of every sort."""

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slipstream import _native
from slipstream.errors import CorruptDataset
from slipstream.pack.pack import pack_dataset
from slipstream.store.format import (
    Column,
    Footer,
    build_directory,
    build_footer,
    build_header,
    parse_directory,
    parse_footer,
    parse_header,
)
from slipstream.store.manifest import Manifest, ShardEntry, parse_manifest, serialize_manifest
from slipstream.store.schema import Field
from slipstream.store.shard import Shard, parse_shard
from slipstream.store.values import decode_value
from tests.conftest import EveryKind

FIELDS = (Field("image", "jpeg"), Field("label", "int"))
MUTATIONS = 6000
MEMORY_BOUND = 20 << 20


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("format") / "kinds.slip"
    pack_dataset(EveryKind(), path, fields=EveryKind.KINDS)
    return path


def test_header_round_trip() -> None:
    header = build_header(7)
    assert len(header) == 32
    assert header[:8] == b"SLIPDATA"
    parse_header(header, 7, _native.crc32c(header), "here")
    with pytest.raises(CorruptDataset, match="wrong shard number: got 7, expected 8"):
        parse_header(header, 8, _native.crc32c(header), "here")


def test_footer_round_trip() -> None:
    footer = Footer(40, 100, 3, 37, 2, 11, 22)
    data = build_footer(footer)
    found = parse_footer(data, 40 + 100 + 64, "here")
    assert len(data) == 64
    assert (found.index_offset, found.samples, found.data_end) == (40, 3, 37)
    assert found.crc == int.from_bytes(data[52:56], "little")


@pytest.mark.parametrize(
    ("footer", "file_bytes"),
    [
        (Footer(40, 100, 3, 37, 2, 0, 0), 205),
        (Footer(40, 100, 3, 41, 2, 0, 0), 204),
        (Footer(40, 100, 3, 31, 2, 0, 0), 204),
        (Footer(48, 100, 3, 37, 2, 0, 0), 212),
        (Footer(40, 100, 1 << 32, 37, 2, 0, 0), 204),
        (Footer(40, 100, 3, 37, 4, 0, 0), 204),
        (Footer(40, 1 << 20, 3, 37, 4097, 0, 0), 40 + (1 << 20) + 64),
    ],
)
def test_footer_that_does_not_fit_is_refused(footer: Footer, file_bytes: int) -> None:
    with pytest.raises(CorruptDataset):
        parse_footer(build_footer(footer), file_bytes, "here")


def test_unknown_version_is_refused_by_name() -> None:
    data = bytearray(build_footer(Footer(40, 100, 3, 37, 2, 11, 22)))
    data[40] = 2
    with pytest.raises(CorruptDataset, match=r"unknown format version: got 2, expected 1"):
        parse_footer(bytes(data), 204, "here")


def test_error_has_its_parts() -> None:
    with pytest.raises(CorruptDataset) as caught:
        parse_footer(bytes(64), 200, "00003.slip")
    assert caught.value.where == "00003.slip"
    assert caught.value.what == "bad footer magic"
    assert caught.value.expected == "b'SLIPINDX'"


def test_directory_must_fit_the_schema() -> None:
    sizes = [24, 24, 12, 12, 12, 3, 3, 24, 2]
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 10]
    owners = [0] * 7 + [1, 0xFFFFFFFF]
    start, columns = 40 + 32 * 9, []
    for owner, id_, size in zip(owners, ids, sizes, strict=True):
        columns.append(Column(owner, id_, start, size, 0))
        start += -(-size // 8) * 8

    def parse(changed: list[Column]) -> tuple[Column, ...]:
        data = build_directory(changed)
        footer = Footer(40, start - 40, 3, 37, len(changed), _native.crc32c(data), 0)
        return parse_directory(data, footer, FIELDS, "here")

    assert parse(columns) == tuple(columns)
    first = columns[0]
    for bad in (
        Column(1, 1, first.offset, 24, 0),
        Column(0, 2, first.offset, 24, 0),
        Column(0, 1, first.offset, 16, 0),
        Column(0, 1, first.offset + 1, 24, 0),
        Column(0, 1, 40, 24, 0),
        Column(0, 1, 1 << 63, 24, 0),
    ):
        with pytest.raises(CorruptDataset):
            parse([bad, *columns[1:]])
    with pytest.raises(CorruptDataset):
        parse(columns[:-1])


def test_manifest_round_trip_is_canonical() -> None:
    manifest = Manifest(FIELDS, (ShardEntry("00000.slip", 3, 500, 9),), ("ä", "b"), {"tool": "t"})
    data = serialize_manifest(manifest)
    found = parse_manifest(data)
    assert serialize_manifest(found) == data
    assert (found.fields, found.shards, found.classes) == (FIELDS, manifest.shards, ("ä", "b"))
    assert data.isascii()


def _edited(body: dict[str, object]) -> bytes:
    body.pop("crc32c", None)
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return json.dumps({**body, "crc32c": _native.crc32c(plain.encode())}).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"format": "other"},
        {"fields": []},
        {"fields": [{"name": "a", "kind": "jpeg"}] * 2},
        {"fields": [{"name": "1", "kind": "jpeg"}]},
        {"fields": [{"name": "a", "kind": "movie"}]},
        {"fields": [{"name": "a", "kind": "array", "dtype": "|O", "shape": [], "ndim": 0}]},
        {"fields": [{"name": "a", "kind": "array", "dtype": "<f16", "shape": [], "ndim": 0}]},
        {"fields": [{"name": "a", "kind": "array", "dtype": ">f4", "shape": [], "ndim": 0}]},
        {"fields": [{"name": "a", "kind": "array", "dtype": "<f4", "shape": [2], "ndim": 2}]},
        {"fields": [{"name": "a", "kind": "array", "dtype": "<f4", "shape": None, "ndim": 33}]},
        {"fields": [{"name": "a", "kind": "array", "dtype": "<f4", "shape": [1 << 39], "ndim": 1}]},
        {"fields": [{"name": "a", "kind": "tokens", "dtype": "<f4", "window": 1, "stride": 1}]},
        {"fields": [{"name": "a", "kind": "tokens", "dtype": "<i4", "window": 0, "stride": 1}]},
        {"samples": 4},
        {"samples": 3.0},
        {"shards": {}},
        {"shards": [{"file": "../x", "samples": 3, "bytes": 500, "crc32c": 9}]},
        {"shards": [{"file": "a/b", "samples": 3, "bytes": 500, "crc32c": 9}]},
        {
            "shards": [{"file": "a", "samples": 1 << 32, "bytes": 500, "crc32c": 9}],
            "samples": 1 << 32,
        },
        {"shards": [{"file": "a", "samples": 3, "bytes": -1, "crc32c": 9}]},
        {"classes": [1]},
        {"made_by": "x"},
    ],
)
def test_manifest_with_a_right_checksum_but_wrong_content_is_refused(
    change: dict[str, object],
) -> None:
    manifest = Manifest(FIELDS, (ShardEntry("00000.slip", 3, 500, 9),))
    body = json.loads(serialize_manifest(manifest))
    assert parse_manifest(_edited(dict(body))).samples == 3
    with pytest.raises(CorruptDataset):
        parse_manifest(_edited({**body, **change}))


def test_new_keys_are_ignored() -> None:
    manifest = Manifest(FIELDS, (ShardEntry("00000.slip", 3, 500, 9),))
    body = json.loads(serialize_manifest(manifest))
    body["later"] = {"x": 1}
    body["shards"][0]["later"] = 2
    assert parse_manifest(_edited(body)).samples == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"nan",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"version":' + b"9" * 10_000 + b"}",
        b'{"format":"slipstream","format":"slipstream"}',
        b'{"format":"slipstream","version":1,"crc32c":NaN}',
        b'{"format":"slipstream","version":1,"x":"\\ud800","crc32c":0}',
    ],
)
def test_manifest_that_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataset):
        parse_manifest(data)


def _mutate(data: bytes, choose: random.Random) -> bytes:
    """Flip, overwrite, cut, insert, repeat: what files suffer."""
    result = bytearray(data)
    for _ in range(choose.choice((1, 1, 1, 2, 5))):
        place = choose.randrange(len(result) + 1)
        action = choose.randrange(6)
        if action <= 1 and place < len(result):
            result[place] ^= 1 << choose.randrange(8)
        elif action == 2 and place < len(result):
            result[place] = choose.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif action == 3:
            del result[place : place + choose.choice((1, 8, 32, 64))]
        elif action == 4:
            result[place:place] = choose.randbytes(choose.choice((1, 8, 64)))
        else:
            result[place : place + 8] = choose.choice((bytes(8), b"\xff" * 8, b"\x7f" * 8))
        if not result:
            break
    return bytes(result)


def _expect_corrupt_or_fine(attempt: Callable[[], object]) -> bool:
    """True if the damage was refused. Anything but `CorruptDataset` fails the test by itself."""
    try:
        attempt()
    except CorruptDataset:
        return True
    return False


def _bounded(work: Callable[[], None]) -> None:
    tracemalloc.start()
    try:
        work()
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BOUND
    finally:
        tracemalloc.stop()


def test_mutated_manifests_are_refused(packed: Path) -> None:
    data = (packed / "manifest.json").read_bytes()
    choose = random.Random(1)

    def work() -> None:
        refused = sum(
            _expect_corrupt_or_fine(lambda: parse_manifest(_mutate(data, choose)))
            for _ in range(MUTATIONS)
        )
        # The rest are changes of white space at the end and the like.
        assert refused > 0.95 * MUTATIONS

    _bounded(work)


def _use_everything(data: bytes, fields: tuple[Field, ...]) -> None:
    """Read a shard as a dataset does, all columns and payloads."""
    whole = np.frombuffer(data, dtype=np.uint8)
    footer, columns = parse_shard(whole, 0, fields, where="mutant")
    shard = Shard("mutant", whole, fields, footer, columns)
    shard.notes()
    for number, field in enumerate(fields):
        for sample in range(shard.samples):
            if field.kind in ("int", "float"):
                shard.column(number, "value")[sample]
            else:
                decode_value(field, shard.payload(number, sample), "mutant")


def test_mutated_shards_are_refused(packed: Path) -> None:
    fields = parse_manifest((packed / "manifest.json").read_bytes()).fields
    data = (packed / "00000.slip").read_bytes()
    _use_everything(data, fields)
    index = int.from_bytes(data[-64:-56], "little")
    choose = random.Random(2)

    def work() -> None:
        for _ in range(MUTATIONS):
            # Mostly the index: it is the part that could lead a reader astray.
            split = choose.choice((0, index, index, len(data) - 64))
            mutant = data[:split] + _mutate(data[split:], choose)
            _expect_corrupt_or_fine(lambda mutant=mutant: _use_everything(mutant, fields))

    _bounded(work)


def _reseal(data: bytearray) -> bytes:
    """Make all checksums of a damaged index right again, so that only its content is wrong."""
    index = int.from_bytes(data[-64:-56], "little")
    count = int.from_bytes(data[-32:-28], "little")
    if index + 32 * count > len(data) - 64 or count > 64:
        return bytes(data)
    for k in range(count):
        entry = index + 32 * k
        offset = int.from_bytes(data[entry + 8 : entry + 16], "little")
        size = int.from_bytes(data[entry + 16 : entry + 24], "little")
        if offset + size <= len(data):
            crc = _native.crc32c(bytes(data[offset : offset + size]))
            data[entry + 24 : entry + 28] = crc.to_bytes(4, "little")
    directory = _native.crc32c(bytes(data[index : index + 32 * count]))
    data[-28:-24] = directory.to_bytes(4, "little")
    data[-20:-16] = _native.crc32c(bytes(data[:32])).to_bytes(4, "little")
    data[-12:-8] = _native.crc32c(bytes(data[-64:-12])).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.slow
def test_resealed_mutants_never_lead_outside(packed: Path) -> None:
    """Checksums do not stop a forger: sizes and offsets are checked for themselves."""
    fields = parse_manifest((packed / "manifest.json").read_bytes()).fields
    data = (packed / "00000.slip").read_bytes()
    assert _reseal(bytearray(data)) == data
    index = int.from_bytes(data[-64:-56], "little")
    choose = random.Random(3)

    def work() -> None:
        refused = 0
        for _ in range(MUTATIONS // 2):
            mutant = bytearray(data)
            for _ in range(choose.choice((1, 2, 3))):
                place = choose.randrange(index, len(data) - 12)
                mutant[place] = choose.choice((mutant[place] ^ (1 << choose.randrange(8)), 0xFF, 0))
            sealed = _reseal(mutant)
            refused += _expect_corrupt_or_fine(
                lambda sealed=sealed: _use_everything(sealed, fields)
            )
        assert refused > 0.1 * MUTATIONS

    _bounded(work)
