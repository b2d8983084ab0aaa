"""A reader written from FORMAT.md alone, as a stranger would, against what `pack` writes."""

import json
import struct
from pathlib import Path

import numpy as np

from slipstream.pack.pack import pack_dataset
from tests.conftest import EveryKind

COLUMN_TYPES = {1: "<Q", 2: "<Q", 3: "<I", 4: "<I", 5: "<I", 6: "<B", 7: "<B", 8: "<q", 9: "<d"}
PICTURE = [1, 2, 3, 4, 5, 6, 7]


def crc(data: bytes) -> int:
    """CRC-32C, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def column_ids(kind: str) -> list[int]:
    if kind in ("jpeg", "image"):
        return PICTURE
    return {"int": [8], "float": [9]}.get(kind, [1, 2, 3])


def read_shard(
    data: bytes, number: int, fields: list[dict], manifest_crc: int
) -> tuple[dict, dict]:
    """Columns by (field, id), and the notes."""
    assert struct.unpack("<8sIIQQ", data[:32]) == (b"SLIPDATA", 1, 32, number, 0)
    footer = struct.unpack("<QQQQIIIIII8s", data[-64:])
    index, index_bytes, samples, data_end, count, directory_crc, version, header_crc = footer[:8]
    assert footer[8:] == (0, crc(data[-64:-12]), b"SLIPINDX")
    assert (version, header_crc, footer[9]) == (1, crc(data[:32]), manifest_crc)
    assert index + index_bytes + 64 == len(data)
    assert 0 <= index - data_end < 8
    assert index % 8 == 0
    assert crc(data[index : index + 32 * count]) == directory_crc
    wanted = [(n, id_) for n, field in enumerate(fields) for id_ in column_ids(field["kind"])]
    columns, notes, end = {}, {}, index + 32 * count
    for k, (owner, id_) in enumerate([*wanted, (0xFFFFFFFF, 10)]):
        entry = struct.unpack_from("<IIQQII", data, index + 32 * k)
        offset, size = entry[2:4]
        block = data[offset : offset + size]
        assert entry[:2] + entry[4:] == (owner, id_, crc(block), 0)
        assert offset % 8 == 0
        assert data[end:offset] == bytes(offset - end)
        end = offset + size
        if id_ == 10:
            notes = json.loads(block)
        else:
            columns[(owner, id_)] = [v[0] for v in struct.iter_unpack(COLUMN_TYPES[id_], block)]
            assert len(columns[(owner, id_)]) == samples
    assert not any(data[end:-64])
    return columns, notes


def test_crc_of_the_specification() -> None:
    assert crc(b"123456789") == 0xE3069283


def test_reader_by_the_book(tmp_path: Path) -> None:
    pack_dataset(EveryKind(), tmp_path / "a.slip", fields=EveryKind.KINDS)
    manifest = json.loads((tmp_path / "a.slip" / "manifest.json").read_bytes())
    stored_crc = manifest.pop("crc32c")
    plain = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert crc(plain.encode()) == stored_crc
    assert (manifest["format"], manifest["version"], manifest["samples"]) == ("slipstream", 1, 5)
    (shard,) = manifest["shards"]
    data = (tmp_path / "a.slip" / shard["file"]).read_bytes()
    assert (len(data), shard["samples"]) == (shard["bytes"], 5)
    columns, notes = read_shard(data, 0, manifest["fields"], shard["crc32c"])
    assert notes == {"source": [0, 5], "skipped": [], "kept": []}
    names = [field["name"] for field in manifest["fields"]]
    payloads: dict[tuple[str, int], bytes] = {}
    ends = 32
    for sample in range(5):
        for number, field in enumerate(manifest["fields"]):
            if field["kind"] in ("int", "float"):
                continue
            start, size, stored = (columns[(number, id_)][sample] for id_ in (1, 2, 3))
            assert crc(data[start : start + size]) == stored
            assert data[ends:start] == bytes(start - ends)
            assert start % 64 == 0 if field["kind"] == "array" else start == ends
            ends = start + size
            payloads[(field["name"], sample)] = data[start : start + size]
    expected = EveryKind()[3]
    assert payloads[("fixed", 3)] == np.asarray(expected["fixed"]).tobytes()
    assert struct.unpack("<2Q6h", payloads[("ragged", 3)]) == (
        3, 2, *np.asarray(expected["ragged"]).ravel().tolist(),
    )  # fmt: skip
    assert payloads[("raw", 3)] == expected["raw"]
    assert payloads[("text", 3)].decode() == expected["text"]
    assert json.loads(payloads[("tree", 3)]) == expected["tree"]
    assert columns[(names.index("whole"), 8)] == [-2, -1, 0, 1, 2]
    assert columns[(names.index("real"), 9)] == [k / 3 for k in range(5)]
