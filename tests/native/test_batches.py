"""Batches put together: payloads side by side, pixels as planes."""

import numpy as np
import pytest

from slipstream import _native


def pictures(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


SHAPES = [
    (1, 1, 1),
    (2, 3, 5),
    (3, 16, 16),
    (1, 1, 17),
    (5, 37, 41),
    (2, 300, 211),
    (0, 4, 4),
    (2, 0, 3),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_planes_hold_the_pixels(shape: tuple[int, int, int], threads: int) -> None:
    src = pictures(*shape, 3)
    out = np.full((shape[0], 3, *shape[1:]), 77, np.uint8)
    _native.convert(src, out, None, threads)
    np.testing.assert_array_equal(out, src.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_planes_hold_the_table_s_entries(shape: tuple[int, int, int], threads: int) -> None:
    src = pictures(*shape, 3)
    table = np.random.default_rng(2).normal(size=(3, 256)).astype(np.float32)
    table[0, :3] = np.nan, np.inf, -0.0
    out = np.full((shape[0], 3, *shape[1:]), 77, np.float32)
    _native.convert(src, out, table, threads)
    expected = np.stack([table[c][src[..., c]] for c in range(3)], axis=1)
    np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))


def test_planes_that_do_not_fit_are_refused() -> None:
    src = pictures(2, 4, 5, 3)
    table = np.zeros((3, 256), np.float32)
    for shape in ((2, 4, 5, 3), (1, 3, 4, 5), (2, 3, 5, 4), (2, 3, 20)):
        with pytest.raises(ValueError, match=r"contiguous \[N, 3, H, W\]"):
            _native.convert(src, np.zeros(shape, np.uint8), None, 1)
    with pytest.raises(ValueError, match="contiguous"):
        _native.convert(src, np.zeros((2, 3, 4, 10), np.uint8)[..., ::2], None, 1)
    with pytest.raises(TypeError, match="float32 with a table"):
        _native.convert(src, np.zeros((2, 3, 4, 5), np.uint8), table, 1)
    with pytest.raises(TypeError, match="uint8 without a table"):
        _native.convert(src, np.zeros((2, 3, 4, 5), np.float32), None, 1)
    locked = np.zeros((2, 3, 4, 5), np.uint8)
    locked.flags.writeable = False
    with pytest.raises(TypeError):
        _native.convert(src, locked, None, 1)
    with pytest.raises(TypeError):
        _native.convert(src, np.zeros((2, 3, 4, 5), np.float32), table[:, :255], 1)


def payloads(count: int, size: int) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Two maps; map numbers, offsets and lengths of payloads in them; and their bytes."""
    random = np.random.default_rng(size)
    maps = [random.integers(0, 256, count * size + 9, dtype=np.uint8) for _ in range(2)]
    ids = random.integers(0, 2, count).astype(np.uint32)
    offsets = (random.permutation(count) * size + 7).astype(np.uint64)
    rows = [maps[m][int(o) : int(o) + size] for m, o in zip(ids, offsets, strict=True)]
    expected = np.stack(rows) if count else np.empty((0, size), np.uint8)
    return maps, [ids, offsets, np.full(count, size, np.uint64)], expected


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("count", "size"), [(0, 5), (1, 1), (7, 0), (100, 12), (64, 4096), (9, 100_001), (3000, 513)]
)
def test_payloads_are_copied_and_checked(count: int, size: int, threads: int) -> None:
    maps, where, expected = payloads(count, size)
    sums = np.array([_native.crc32c(row.tobytes()) for row in expected], np.uint32)
    for checksums in (None, sums):
        out = np.full((count, size), 77, np.uint8)
        status = _native.gather(maps, *where, checksums, out, threads)
        assert status.tolist() == [0] * count
        np.testing.assert_array_equal(out, expected)
    if count < 3:
        return
    sums[[0, count - 1]] ^= 1
    status = _native.gather(maps, *where, sums, out, threads)
    assert np.flatnonzero(status).tolist() == [0, count - 1]
    assert set(status[[0, -1]].tolist()) == {_native.STATUS_CHECKSUM}
    assert not out[[0, -1]].any()
    np.testing.assert_array_equal(out[1:-1], expected[1:-1])


def test_payloads_that_do_not_fit_are_refused() -> None:
    maps, (ids, offsets, lengths), _ = payloads(4, 10)
    out = np.zeros((4, 10), np.uint8)
    with pytest.raises(ValueError, match="sample 2 has 9 bytes, out has room for 10"):
        _native.gather(maps, ids, offsets, np.array([10, 10, 9, 10], np.uint64), None, out, 1)
    with pytest.raises(ValueError, match="sample 1 lies outside its map"):
        outside = np.array([0, 40, 0, 0], np.uint64)
        _native.gather(maps, ids, outside, lengths, None, out, 1)
    with pytest.raises(ValueError, match="sample 3 lies outside its map"):
        _native.gather(maps, np.array([0, 1, 0, 2], np.uint32), offsets, lengths, None, out, 1)
    with pytest.raises(ValueError, match="out has 3 entries, expected 4"):
        _native.gather(maps, ids, offsets, lengths, None, out[:3], 1)
    with pytest.raises(ValueError, match="checksums has 1 entries, expected 4"):
        _native.gather(maps, ids, offsets, lengths, np.zeros(1, np.uint32), out, 1)
    with pytest.raises(TypeError):
        _native.gather(maps, ids, offsets, lengths, None, np.zeros((4, 20), np.uint8)[:, ::2], 1)
