"""What the GPU gets, and what its kernels make of it: their own source, run by the processor."""

import gc
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipstream
from slipstream import _native
from slipstream.pack.pack import pack_source
from slipstream.pack.pictures import PictureOptions
from slipstream.pack.sources.detect import open_source
from slipstream.store.images import FILTERS, decode_rows, pass_order
from slipstream.store.reader import Rows
from tests.native.composer import SAMPLINGS, compose, plane_sizes
from tests.pictures import jpeg, png, turned_jpeg

NO_LIMIT = 1 << 40
HEADER_BYTES = 24  # of a tile record, before its JPEG header


@dataclass(frozen=True)
class Crops:
    """What is taken of each picture; all results have one size."""

    boxes: np.ndarray
    flips: np.ndarray
    resized: np.ndarray | None
    size: tuple[int, int]
    filter: str = "bilinear"


@dataclass(frozen=True)
class Emulated:
    pixels: np.ndarray
    statuses: np.ndarray
    slots: int


def random_crops(
    rows: Rows, seed: int, size: tuple[int, int] = (24, 17), filter: str = "bilinear"
) -> Crops:
    """Boxes inside the pictures, and windows of what they are resized to."""
    random = np.random.default_rng(seed)
    count = len(rows.map_ids)
    sides = np.stack([rows.widths, rows.heights], axis=1).astype(np.int64)
    lengths = random.integers(1, sides + 1)
    starts = random.integers(0, sides - lengths + 1)
    beyond = random.integers(0, 30, (count, 2))
    resized = np.concatenate([np.asarray(size) + beyond, random.integers(0, beyond + 1)], axis=1)
    return Crops(
        np.concatenate([starts, lengths], axis=1).astype(np.int32),
        random.integers(0, 4, count).astype(np.uint8),
        resized.astype(np.int32) if seed % 2 else None,
        size,
        filter,
    )


def whole(rows: Rows, size: tuple[int, int] = (16, 16)) -> Crops:
    zeros = np.zeros(len(rows.map_ids), np.uint32)
    boxes = np.stack([zeros, zeros, rows.widths, rows.heights], axis=1).astype(np.int32)
    return Crops(boxes, zeros.astype(np.uint8), None, size)


def slices_of(
    rows: Rows, crops: Crops, *, first: int = 0, most_bytes: int = NO_LIMIT, **changes: Any
) -> Any:
    arguments = {
        "maps": rows.maps, "map_ids": rows.map_ids, "offsets": rows.offsets,
        "lengths": rows.lengths, "codings": rows.codings, "checksums": rows.checksums,
        "boxes": crops.boxes, "flips": crops.flips, "resized": crops.resized, "size": crops.size,
        "filter": FILTERS[crops.filter], "pass_order": pass_order(), "first": first,
        "most_bytes": most_bytes, "threads": 2,
    }  # fmt: skip
    return _native.Slices(**{**arguments, **changes})


def slot_for(slices: Any) -> np.ndarray:
    """As page-locked memory would be: any bytes in it, at a multiple of 16."""
    memory = np.full(slices.sizes[0] + 16, 0xA5, np.uint8)
    start = -memory.ctypes.data % 16
    return memory[start : start + slices.sizes[0]]


def bytes_themselves() -> np.ndarray:
    return np.tile(np.arange(256, dtype=np.uint8), (3, 1))[..., None]


def emulate(
    rows: Rows, crops: Crops, *, most_bytes: int = NO_LIMIT, values: np.ndarray | None = None
) -> Emulated:
    """All of a batch, slot by slot, as the loader does it on a GPU."""
    values = bytes_themselves() if values is None else values
    count, (width, height) = len(rows.map_ids), crops.size
    out = np.zeros((count, height, width, 3, values.shape[2]), np.uint8)
    verdicts = np.full(count, 0xFFFFFFFF, np.uint32)
    statuses = np.zeros(count, np.int32)
    first = slots = 0
    while first < count:
        slices = slices_of(rows, crops, first=first, most_bytes=most_bytes)
        slot = slot_for(slices)
        slices.write(slot, 2)
        slices.emulate(slot, values, out.reshape(-1), verdicts)
        assert slices.end > first
        statuses[first : slices.end] = slices.statuses
        first, slots = slices.end, slots + 1
    found = _native.statuses_of_verdicts(verdicts)
    return Emulated(out, np.where(statuses == 0, found, statuses), slots)


def check_equal(rows: Rows, crops: Crops, **options: Any) -> Emulated:
    """Pixels of tiles equal the engine's byte for byte; files are left to the processor."""
    got = emulate(rows, crops, **options)
    pixels, status = decode_rows(
        rows, crops.boxes, crops.size, filter=crops.filter, flips=crops.flips,
        resized=crops.resized, threads=2,
    )  # fmt: skip
    files = rows.codings == 0
    assert not status.any()
    assert got.statuses[~files].tolist() == [_native.STATUS_OK] * int((~files).sum())
    assert got.statuses[files].tolist() == [_native.STATUS_UNSUPPORTED] * int(files.sum())
    np.testing.assert_array_equal(got.pixels[~files, ..., 0], pixels[~files])
    return got


def rows_of(path: Path) -> Rows:
    dataset = slipstream.open_dataset(path)
    return dataset.rows("image", np.arange(len(dataset)))


def rows_of_records(records: list[bytes], sizes: np.ndarray) -> Rows:
    """Records in memory, one map each, with checksums that fit."""
    count = len(records)
    return Rows(
        maps=[np.frombuffer(record, np.uint8) for record in records],
        map_ids=np.arange(count, dtype=np.uint32),
        offsets=np.zeros(count, np.uint64),
        lengths=np.array([len(record) for record in records], np.uint64),
        checksums=np.array([_native.crc32c(record) for record in records], np.uint32),
        codings=np.ones(count, np.uint8),
        widths=sizes[:, 0],
        heights=sizes[:, 1],
    )


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """JPEGs of every sampling that Pillow writes, and of every kind that becomes tiles."""
    root = tmp_path_factory.mktemp("tiles")
    files = {
        "444.jpg": jpeg(101, 67, 1, subsampling="4:4:4"),
        "422.jpg": jpeg(90, 61, 2, subsampling="4:2:2"),
        "420.jpg": jpeg(77, 130, 3, subsampling="4:2:0"),
        "coarse.jpg": jpeg(150, 40, 4, quality=5),
        "fine.jpg": jpeg(64, 64, 5, quality=100, subsampling="4:2:0"),
        "gray.jpg": jpeg(50, 40, 6, mode="L"),
        "one.jpg": jpeg(1, 1, 7),
        "optimized.jpg": jpeg(33, 31, 8, optimize=True),
        "progressive.jpg": jpeg(70, 90, 9, progressive=True),
        "progressive-gray.jpg": jpeg(41, 23, 10, mode="L", progressive=True),
        "thin.jpg": jpeg(3, 200, 11, subsampling="4:2:2"),
        "turned.jpg": turned_jpeg(6),
        "wide.jpg": jpeg(900, 16, 12, subsampling="4:2:0"),
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    pack_source(open_source(root), root / "packed.slip", shard_bytes=20_000)
    rows = rows_of(root / "packed.slip")
    assert rows.codings is not None and rows.codings.all()
    assert len(rows.maps) > 1
    return rows


# Pixels.


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("seed", range(4))
def test_pixels_equal_the_engines(tiles: Rows, filter: str, seed: int) -> None:
    check_equal(tiles, random_crops(tiles, seed, filter=filter))


@pytest.mark.parametrize("luma", SAMPLINGS.values(), ids=list(SAMPLINGS))
def test_samplings_that_pillow_does_not_write(tmp_path: Path, luma: tuple[int, int]) -> None:
    random = np.random.default_rng(sum(luma))
    for number, size in enumerate([(1, 1), (5, 3), (16, 16), (65, 33), (130, 47)]):
        planes = [
            random.integers(0, 256, (h, w), dtype=np.uint8) for w, h in plane_sizes(size, luma)
        ]
        (tmp_path / f"{number}.jpg").write_bytes(compose(planes, size, luma, 80))
    pack_source(open_source(tmp_path), tmp_path / "packed.slip")
    rows = rows_of(tmp_path / "packed.slip")
    assert rows.codings is not None and rows.codings.all()
    for seed in range(4):
        check_equal(rows, random_crops(rows, seed))


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (64, 3), (200, 170)])
def test_results_of_any_size(tiles: Rows, size: tuple[int, int]) -> None:
    for seed in range(2):
        check_equal(tiles, random_crops(tiles, seed, size))
    check_equal(tiles, whole(tiles, size))


@pytest.mark.parametrize("flip", range(4))
def test_flips(tiles: Rows, flip: int) -> None:
    flips = np.full(len(tiles.map_ids), flip, np.uint8)
    check_equal(tiles, replace(random_crops(tiles, 1), flips=flips))


def test_a_crop_that_is_not_resized(tiles: Rows) -> None:
    crops = whole(tiles, (1, 1))
    check_equal(tiles, replace(crops, boxes=np.minimum(crops.boxes, 1)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("orient", [False, True])
def test_pictures_with_an_exif_orientation(tmp_path: Path, orientation: int, orient: bool) -> None:
    """Turned upright when packed, or not; either way the kernels do as the engine does."""
    (tmp_path / "turned.jpg").write_bytes(turned_jpeg(orientation))
    options = PictureOptions(orient=orient)
    pack_source(open_source(tmp_path), tmp_path / "packed.slip", pictures=options)
    rows = rows_of(tmp_path / "packed.slip")
    check_equal(rows, random_crops(rows, orientation))


def test_pictures_that_are_no_tiles_are_left_out(mixed_dataset: Path) -> None:
    """PNG, WebP and CMYK files between JPEGs."""
    rows = rows_of(mixed_dataset)
    assert rows.codings is not None and 0 < rows.codings.sum() < len(rows.codings)
    for seed in range(6):
        check_equal(rows, random_crops(rows, seed))
    slices = slices_of(rows, whole(rows))
    assert slices.pictures == rows.codings.sum() and slices.end == len(rows.codings)


def test_a_batch_of_files_alone_has_no_pictures(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png(20, 10, number))
    pack_source(open_source(tmp_path), tmp_path / "packed.slip")
    rows = rows_of(tmp_path / "packed.slip")
    slices = slices_of(rows, whole(rows))
    assert slices.pictures == 0 and slices.end == 3
    assert slices.statuses.tolist() == [_native.STATUS_UNSUPPORTED] * 3
    assert not emulate(rows, whole(rows)).pixels.any()


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_values_take_the_place_of_bytes(tiles: Rows, dtype: Any) -> None:
    """As a pipeline ends: each channel has its own value for every byte."""
    table = np.random.default_rng(3).integers(0, 60_000, (3, 256)).astype(dtype)
    crops = random_crops(tiles, 2)
    plain = emulate(tiles, crops).pixels[..., 0]
    values = table.view(np.uint8).reshape(3, 256, -1)
    got = emulate(tiles, crops, values=values).pixels.view(dtype)[..., 0]
    np.testing.assert_array_equal(got, table[np.arange(3), plain])


# Batches that are cut.


def test_a_batch_is_cut_into_slots_with_the_same_pixels(tiles: Rows) -> None:
    crops = random_crops(tiles, 5)
    count = len(tiles.map_ids)
    one, some, each = (check_equal(tiles, crops, most_bytes=n) for n in (NO_LIMIT, 60_000, 1))
    assert (one.slots, each.slots) == (1, count) and 1 < some.slots < count
    np.testing.assert_array_equal(one.pixels, some.pixels)
    np.testing.assert_array_equal(one.pixels, each.pixels)


def test_a_slot_begins_where_it_is_told(tiles: Rows) -> None:
    """What is before `first` is not touched: the processor may be at it."""
    crops, count = whole(tiles), len(tiles.map_ids)
    slices = slices_of(tiles, crops, first=4)
    assert (slices.end, slices.pictures, len(slices.statuses)) == (count, count - 4, count - 4)
    slot, verdicts = slot_for(slices), np.full(count, 7, np.uint32)
    out = np.full((count, 16, 16, 3), 77, np.uint8)
    slices.write(slot, 1)
    slices.emulate(slot, bytes_themselves(), out.reshape(-1), verdicts)
    assert (out[:4] == 77).all() and verdicts.tolist() == [7] * count
    np.testing.assert_array_equal(out[4:], emulate(tiles, crops).pixels[4:, ..., 0])


def test_nothing_is_left_behind_the_last(tiles: Rows) -> None:
    count = len(tiles.map_ids)
    slices = slices_of(tiles, whole(tiles), first=count)
    assert (slices.end, slices.pictures, len(slices.statuses)) == (count, 0, 0)
    slices.write(slot_for(slices), 1)


def test_files_count_nothing_against_the_limit(mixed_dataset: Path) -> None:
    rows = rows_of(mixed_dataset)
    got = check_equal(rows, random_crops(rows, 3), most_bytes=1)
    assert rows.codings is not None
    assert got.slots <= rows.codings.sum() + 1


# Bad samples.


def test_checksums_are_looked_at_when_bytes_are_copied(tiles: Rows) -> None:
    checksums = tiles.checksums.copy()
    checksums[[2, 5]] ^= 1
    rows = replace(tiles, checksums=checksums)
    slices = slices_of(rows, whole(rows))
    assert not slices.statuses.any()
    slices.write(slot_for(slices), 2)
    assert np.flatnonzero(slices.statuses).tolist() == [2, 5]
    assert slices.statuses[[2, 5]].tolist() == [_native.STATUS_CHECKSUM] * 2
    _, status = decode_rows(rows, whole(rows).boxes, (16, 16))
    assert status.tolist() == slices.statuses.tolist()


def test_without_checksums_nothing_is_compared(tiles: Rows) -> None:
    slices = slices_of(tiles, whole(tiles), checksums=None)
    slices.write(slot_for(slices), 2)
    assert not slices.statuses.any()


def test_a_damaged_header_is_a_matter_of_the_checksum_first(tiles: Rows) -> None:
    """Whoever reads the message shall look for a bad disk, not for a bad writer."""
    records = payloads(tiles)
    broken = [b"XXXX" + record[4:] for record in records]
    sizes = np.stack([tiles.widths, tiles.heights], axis=1)
    rows = replace(rows_of_records(broken, sizes), checksums=tiles.checksums)
    assert set(emulate(rows, whole(rows)).statuses.tolist()) == {_native.STATUS_CHECKSUM}
    rows = rows_of_records(broken, sizes)
    (status,) = set(emulate(rows, whole(rows)).statuses.tolist())
    assert _native.status_text(status) == "tile record does not start with TJP1"


def payloads(rows: Rows) -> list[bytes]:
    return [
        bytes(memoryview(rows.maps[m])[o : o + n])
        for m, o, n in zip(
            rows.map_ids.tolist(), rows.offsets.tolist(), rows.lengths.tolist(), strict=True
        )
    ]


def damaged(record: bytes, random: np.random.Generator) -> bytes:
    """Some bytes turned over: in the second half, which is segments, or anywhere, or the end is
    missing.
    """
    data = bytearray(record)
    kind = int(random.integers(3))
    first = (len(data) // 2, HEADER_BYTES, 0)[kind]
    for place in random.integers(first, len(data), int(random.integers(1, 4))):
        data[place] ^= int(random.integers(1, 256))
    return bytes(data[: int(random.integers(1, len(data)))] if kind == 2 else data)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_records_are_found_out_as_the_engine_does(tiles: Rows, seed: int) -> None:
    """With checksums that fit, so that only decoding can find it."""
    random = np.random.default_rng(seed)
    sizes = np.stack([tiles.widths, tiles.heights], axis=1)
    rows = rows_of_records(
        [damaged(record, random) for record in payloads(tiles) * 4], np.tile(sizes, (4, 1))
    )
    crops = random_crops(rows, seed)
    got = emulate(rows, crops)
    _, status = decode_rows(rows, crops.boxes, crops.size, flips=crops.flips, resized=crops.resized)
    assert ((got.statuses == 0) == (status == 0)).all()
    assert 0 < (status == 0).sum() < len(status)
    assert all(_native.status_text(code) != "unknown status" for code in got.statuses.tolist())


def test_neighbours_of_a_damaged_picture_are_fine(tiles: Rows) -> None:
    records = payloads(tiles)
    records[3] = records[3][:-40] + bytes(40)
    rows = rows_of_records(records, np.stack([tiles.widths, tiles.heights], axis=1))
    got, sound = emulate(rows, whole(rows)), emulate(tiles, whole(tiles))
    assert np.flatnonzero(got.statuses).tolist() == [3]
    others = np.arange(len(records)) != 3
    np.testing.assert_array_equal(got.pixels[others], sound.pixels[others])


@pytest.mark.parametrize(
    "box",
    [(-1, 0, 5, 5), (0, -1, 5, 5), (0, 0, 0, 5), (0, 0, 5, 0), (1, 0, 1 << 30, 1), (0, 900, 1, 1)],
)
def test_boxes_outside_the_picture_are_refused(tiles: Rows, box: tuple[int, ...]) -> None:
    crops = whole(tiles)
    crops.boxes[4] = box
    got = emulate(tiles, crops)
    assert np.flatnonzero(got.statuses).tolist() == [4]
    assert got.statuses[4] == _native.STATUS_BOX
    assert decode_rows(tiles, crops.boxes, crops.size)[1].tolist() == got.statuses.tolist()


@pytest.mark.parametrize(
    "window", [(15, 16, 0, 0), (20, 20, 5, 0), (20, 20, 0, -1), (0, 0, 0, 0), (1 << 25, 16, 0, 0)]
)
def test_windows_outside_the_resized_box_are_refused(tiles: Rows, window: tuple[int, ...]) -> None:
    resized = np.tile(np.array([16, 16, 0, 0], np.int32), (len(tiles.map_ids), 1))
    resized[2] = window
    crops = replace(whole(tiles), resized=resized)
    got = emulate(tiles, crops)
    assert np.flatnonzero(got.statuses).tolist() == [2]
    assert got.statuses[2] == _native.STATUS_BOX
    _, status = decode_rows(tiles, crops.boxes, crops.size, resized=resized)
    assert status.tolist() == got.statuses.tolist()


# Arguments.


def test_a_slot_that_does_not_fit_is_refused(tiles: Rows) -> None:
    slices = slices_of(tiles, whole(tiles))
    slot = slot_for(slices)
    with pytest.raises(ValueError, match="slot is too small"):
        slices.write(slot[:-1], 1)
    with pytest.raises(ValueError, match="slot is not aligned to 16"):
        slices.write(np.concatenate([slot, slot])[1:], 1)
    locked = slot.copy()
    locked.flags.writeable = False
    for wrong in (slot.view(np.int8), slot.reshape(1, -1), np.concatenate([slot] * 2)[::2], locked):
        with pytest.raises(TypeError):
            slices.write(wrong, 1)


def test_results_that_do_not_fit_are_refused(tiles: Rows) -> None:
    slices, count = slices_of(tiles, whole(tiles)), len(tiles.map_ids)
    slot, out = slot_for(slices), np.zeros(count * 16 * 16 * 3, np.uint8)
    slices.write(slot, 1)
    verdicts, values = np.zeros(count, np.uint32), bytes_themselves()
    with pytest.raises(ValueError, match="slot is too small"):
        slices.emulate(slot[:16], values, out, verdicts)
    with pytest.raises(ValueError, match=f"out has {len(out) - 1} entries, expected {len(out)}"):
        slices.emulate(slot, values, out[:-1], verdicts)
    with pytest.raises(ValueError, match="verdicts has too few entries"):
        slices.emulate(slot, values, out[: -16 * 16 * 3], verdicts[1:])
    with pytest.raises(ValueError, match="values has 2 entries, expected 3"):
        slices.emulate(slot, values[:2], out, verdicts)
    with pytest.raises(ValueError, match="values of a channel has 255 entries, expected 256"):
        slices.emulate(slot, np.ascontiguousarray(values[:, 1:]), out, verdicts)
    with pytest.raises(ValueError, match="values must have 1, 2 or 4 bytes"):
        slices.emulate(slot, np.repeat(values, 3, axis=2), out, verdicts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": np.zeros(1, np.uint64)}, "offsets has 1 entries, expected 13"),
        ({"lengths": np.zeros(1, np.uint64)}, "lengths has 1 entries, expected 13"),
        ({"codings": np.ones(2, np.uint8)}, "codings has 2 entries, expected 13"),
        ({"checksums": np.ones(14, np.uint32)}, "checksums has 14 entries, expected 13"),
        ({"flips": np.ones(2, np.uint8)}, "flips has 2 entries, expected 13"),
        ({"boxes": np.ones((2, 4), np.int32)}, "boxes has 2 entries, expected 13"),
        ({"resized": np.ones((2, 4), np.int32)}, "resized has 2 entries, expected 13"),
        ({"codings": np.full(13, 2, np.uint8)}, "codings must be 0 or 1"),
        ({"map_ids": np.full(13, 99, np.uint32)}, "sample 0 lies outside its map"),
        ({"lengths": np.full(13, 1 << 40, np.uint64)}, "sample 0 lies outside its map"),
        ({"offsets": np.full(13, (1 << 64) - 1, np.uint64)}, "sample 0 lies outside its map"),
        ({"size": (0, 16)}, "1 to 16777216 pixels"),
        ({"size": (16, (1 << 24) + 1)}, "1 to 16777216 pixels"),
        ({"filter": 5}, "filter is 5, expected 0 nearest"),
        ({"pass_order": 3}, "pass_order is 3, expected 0, 1 or 2"),
        ({"first": 14}, "first lies behind the last sample"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_that_do_not_fit_are_refused(
    tiles: Rows, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        slices_of(tiles, whole(tiles), **changes)


@pytest.mark.parametrize(
    "changes",
    [{"boxes": np.ones((13, 3), np.int32)}, {"flips": np.ones((13, 1), np.uint8)}, {"maps": [1]}],
    ids=["boxes", "flips", "maps"],
)
def test_arrays_of_another_kind_are_refused(tiles: Rows, changes: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        slices_of(tiles, whole(tiles), **changes)


# Who owns what.


def test_a_plan_keeps_what_it_was_made_of(tiles: Rows) -> None:
    """The loader may drop its arrays and its maps between the plan and the copy."""
    records = [bytearray(record) for record in payloads(tiles)]
    sizes = np.stack([tiles.widths, tiles.heights], axis=1)
    own: Any = replace(rows_of_records([bytes(r) for r in records], sizes), maps=list(records))
    crops = random_crops(own, 1)
    expected = emulate(own, crops).pixels
    slices = slices_of(own, crops)
    with pytest.raises(BufferError):
        records[0].append(0)
    arrays = [own.map_ids, own.offsets, own.lengths, own.codings, own.checksums]
    alive = [weakref.ref(a) for a in (*arrays, crops.boxes, crops.flips, crops.resized)]
    count = len(records)
    del own, crops, arrays, records
    gc.collect()
    # Memory that was given up would be someone else's now.
    others = [np.full(1 << 12, 0xEE, np.uint8) for _ in range(1000)]
    assert all(array() is not None for array in alive)
    slot, out = slot_for(slices), np.zeros(expected.size, np.uint8)
    slices.write(slot, 2)
    slices.emulate(slot, bytes_themselves(), out, np.full(count, 0xFFFFFFFF, np.uint32))
    np.testing.assert_array_equal(out.reshape(expected.shape), expected)
    assert len(others) == 1000
    del slices
    gc.collect()
    assert all(array() is None for array in alive)


def test_maps_are_let_go_with_the_plan(tiles: Rows) -> None:
    (record,) = payloads(tiles)[:1]
    data = bytearray(record)
    size = np.stack([tiles.widths, tiles.heights], axis=1)[:1]
    rows: Any = replace(rows_of_records([record], size), maps=[data])
    slices = slices_of(rows, whole(rows))
    with pytest.raises(BufferError):
        data.append(0)
    del slices
    gc.collect()
    data.append(0)


def test_a_plan_can_be_written_twice(tiles: Rows) -> None:
    slices = slices_of(tiles, random_crops(tiles, 1))
    one, other = slot_for(slices), slot_for(slices)
    slices.write(one, 1)
    slices.write(other, 3)
    np.testing.assert_array_equal(one, other)
