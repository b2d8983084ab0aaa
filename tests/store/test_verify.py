"""`verify` finds any flipped byte and names the samples it touches."""

from pathlib import Path

import numpy as np
import pytest

import slipstream
from slipstream import _native
from slipstream.pack.pack import pack_dataset, pack_source
from slipstream.pack.sources.detect import open_source
from slipstream.store.reader import Store
from slipstream.store.verify import Problem, verify_dataset
from tests.pictures import jpeg, png


class Small:
    """Few bytes, but gaps, shared fields and a key."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, object]:
        return {
            "key": f"k{index}",
            "x": np.full((3,), index, dtype=np.int16),
            "note": {"n": index},
            "label": index,
            "real": float(index),
        }


@pytest.fixture
def small(tmp_path: Path) -> Path:
    pack_dataset(Small(), tmp_path / "small.slip")
    return tmp_path / "small.slip"


def problems_after_flip(path: Path, place: int, mask: int) -> list[Problem]:
    data = bytearray(path.read_bytes())
    data[place] ^= mask
    path.write_bytes(data)
    found = list(verify_dataset(path.parent, threads=1))
    data[place] ^= mask
    path.write_bytes(data)
    return found


def test_a_whole_dataset_has_no_problems(small: Path, mixed_dataset: Path) -> None:
    assert list(verify_dataset(small)) == []
    checked: list[int] = []
    assert list(verify_dataset(mixed_dataset, progress=checked.append)) == []
    assert sum(checked) == sum(shard.bytes for shard in Store(mixed_dataset).manifest.shards)


@pytest.mark.slow
def test_any_byte_of_the_manifest(small: Path) -> None:
    path = small / "manifest.json"
    for place in range(path.stat().st_size):
        for mask in (0x20, (1, 0xFF)[place % 2]):
            assert problems_after_flip(path, place, mask), (place, mask)


@pytest.mark.slow
def test_any_byte_of_a_shard_and_whom_it_touches(small: Path) -> None:
    path = small / "00000.slip"
    shard = Store(small).shard(0)
    owner: dict[int, tuple[int, str]] = {}
    for number in (0, 1, 2):
        name = shard.fields[number].name
        starts, sizes = shard.column(number, "offset"), shard.column(number, "length")
        for sample in range(4):
            for place in range(int(starts[sample]), int(starts[sample] + sizes[sample])):
                owner[place] = (sample, name)
    assert len(owner) == 4 * (2 + 6 + 7)
    gaps = 0
    for place in range(path.stat().st_size):
        found = problems_after_flip(path, place, 1 << (place % 8))
        assert found, place
        if place in owner:
            sample, field = owner[place]
            assert [(p.first, p.end, p.field) for p in found] == [(sample, sample + 1, field)]
            assert found[0].key == ("" if field == "key" else f"k{sample}")
        elif 32 <= place < shard.footer.index_offset:
            gaps += 1
            (problem,) = found
            before = [sample for at, (sample, _) in owner.items() if at < place]
            assert problem.end - problem.first == 1
            assert problem.first in (max(before, default=0), max(before, default=0) + 1)
        else:
            assert (found[0].first, found[0].end) == (0, 4)
    assert gaps > 50


def test_damaged_column_names_its_field(small: Path) -> None:
    shard = Store(small).shard(0)
    for number, id_, name in ((0, 2, "key"), (3, 8, "label"), (4, 9, "real")):
        place = shard.columns[(number, id_)].offset
        (problem,) = problems_after_flip(small / "00000.slip", place, 1)
        assert (problem.field, problem.first, problem.end) == (name, 0, 4)
        assert "checksum does not match" in problem.what


def test_flips_in_pictures_name_sample_and_key(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, data in (("a.jpg", jpeg(20, 20)), ("b.png", png(9, 9)), ("c.jpg", jpeg(30, 9))):
        (folder / name).write_bytes(data)
    pack_source(open_source(folder), tmp_path / "a.slip", shard_bytes=4096)
    dataset = slipstream.open_dataset(tmp_path / "a.slip")
    random = np.random.default_rng(0)
    for number, name in enumerate(("a.jpg", "b.png", "c.jpg")):
        shard, local = Store(tmp_path / "a.slip").find(number)
        start, size = (int(shard.column(0, n)[local]) for n in ("offset", "length"))
        for _ in range(20):
            place = start + int(random.integers(size))
            mask = 1 << int(random.integers(8))
            (problem,) = problems_after_flip(Path(shard.where), place, mask)
            assert (problem.first, problem.end, problem.key) == (number, number + 1, name)
            assert str(problem).endswith(
                f'sample {number} ({name}), field "image": payload checksum does not match'
            )
    assert len(dataset) == 3


def test_wrong_content_under_a_right_checksum(tmp_path: Path) -> None:
    """A tile record whose size the index gets wrong, and one whose inside is broken."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(jpeg(40, 30))
    pack_source(open_source(folder), tmp_path / "a.slip")
    path = tmp_path / "a.slip" / "00000.slip"
    shard = Store(tmp_path / "a.slip").shard(0)
    _rewrite(path, tmp_path, shard.columns[(0, 4)].offset, b"\x29\0\0\0")
    (problem,) = verify_dataset(tmp_path / "a.slip")
    assert problem.what == "tile record of (40, 30) pixels, the index says (41, 30)"


def _rewrite(path: Path, folder: Path, place: int, value: bytes) -> None:
    """Change bytes of an index column and make every checksum above it right."""
    data = bytearray(path.read_bytes())
    data[place : place + len(value)] = value
    index = int.from_bytes(data[-64:-56], "little")
    count = int.from_bytes(data[-32:-28], "little")
    for entry in range(index, index + 32 * count, 32):
        start = int.from_bytes(data[entry + 8 : entry + 16], "little")
        size = int.from_bytes(data[entry + 16 : entry + 24], "little")
        crc = _native.crc32c(bytes(data[start : start + size]))
        data[entry + 24 : entry + 28] = crc.to_bytes(4, "little")
    crc = _native.crc32c(bytes(data[index : index + 32 * count]))
    data[-28:-24] = crc.to_bytes(4, "little")
    footer_crc = _native.crc32c(bytes(data[-64:-12]))
    data[-12:-8] = footer_crc.to_bytes(4, "little")
    path.write_bytes(data)
    from slipstream.store.manifest import Manifest, ShardEntry, serialize_manifest

    before = Store(folder / "a.slip").manifest
    (entry_before,) = before.shards
    entry_now = ShardEntry(entry_before.file, entry_before.samples, len(data), footer_crc)
    manifest = Manifest(before.fields, (entry_now,), before.classes, before.made_by)
    (folder / "a.slip" / "manifest.json").write_bytes(serialize_manifest(manifest))


def test_missing_shard_is_a_problem(mixed_dataset: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy.slip"
    shutil.copytree(mixed_dataset, copy)
    (copy / "00001.slip").unlink()
    (problem,) = verify_dataset(copy)
    assert problem.file == "00001.slip"
    assert problem.what == "shard is missing"
    assert problem.end > problem.first > 0
