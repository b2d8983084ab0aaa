"""Datasets that once were called damaged, or raised the wrong error."""

import struct
from pathlib import Path

import numpy as np
import pytest

import slipstream
from slipstream.errors import CorruptDataset
from slipstream.pack.fields import Payload
from slipstream.pack.pack import pack_dataset
from slipstream.pack.writer import ShardWriter
from slipstream.store.manifest import Manifest, serialize_manifest
from slipstream.store.reader import Store
from slipstream.store.schema import Field
from slipstream.store.verify import verify_dataset

HUGE = (1 << 40, 1 << 40, 0)


def test_empty_payloads_are_no_damage(tmp_path: Path) -> None:
    samples = [
        {"t": "x" * k, "a": np.zeros((0,)), "b": np.zeros((3, 0, 2)), "c": b""} for k in range(4)
    ]
    pack_dataset(samples, tmp_path / "a.slip")
    assert list(verify_dataset(tmp_path / "a.slip")) == []
    pack_dataset([{"a": np.zeros(0)}], tmp_path / "b.slip")
    assert list(verify_dataset(tmp_path / "b.slip")) == []


def test_padding_before_an_empty_payload_is_checked(tmp_path: Path) -> None:
    pack_dataset([{"t": "x", "a": np.zeros(0)}], tmp_path / "a.slip")
    shard = Store(tmp_path / "a.slip").shard(0)
    place = int(shard.column(1, "offset")[0]) - 1
    assert place > int(shard.column(0, "offset")[0])
    path = tmp_path / "a.slip" / "00000.slip"
    data = bytearray(path.read_bytes())
    data[place] = 1
    path.write_bytes(data)
    (problem,) = verify_dataset(tmp_path / "a.slip")
    assert problem.what == "bytes before the payload are not zero"
    assert (problem.first, problem.end) == (0, 1)


def _write(folder: Path, spec: Field, payload: bytes) -> Path:
    folder.mkdir()
    writer = ShardWriter(folder, 0, (spec,), first_item=0)
    writer.add((Payload(payload),))
    entry = writer.finish(end_item=1, skipped=[])
    manifest = Manifest((spec,), (entry,), None, {})
    (folder / "manifest.json").write_bytes(serialize_manifest(manifest))
    return folder


def test_sizes_beyond_numpy_beside_a_zero(tmp_path: Path) -> None:
    spec = Field("a", "array", dtype="<f4", shape=None, ndim=3)
    ragged = _write(tmp_path / "a.slip", spec, struct.pack("<3Q", *HUGE))
    with pytest.raises(CorruptDataset, match="array sizes do not fit"):
        slipstream.open_dataset(ragged)[0]
    (problem,) = verify_dataset(ragged)
    assert "array sizes do not fit" in problem.what
    fixed = _write(tmp_path / "b.slip", Field("a", "array", "<f4", HUGE, 3), b"")
    with pytest.raises(CorruptDataset, match="bad shape"):
        slipstream.open_dataset(fixed)
    (problem,) = verify_dataset(fixed)
    assert "bad shape" in problem.what
