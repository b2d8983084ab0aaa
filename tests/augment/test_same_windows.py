"""The windows of RandomResizedCrop and flips are, to the bit, those of the plainest way to draw
them: all ten tries for every picture.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from slipstream import _native
from slipstream.augment.geometry import Geometry, Windows
from slipstream.augment.steps import LEFT_RIGHT, TOP_BOTTOM, Flip, RandomArea, Resize
from tests.augment.replay import random_words

Ints = npt.NDArray[np.int64]
Range = tuple[float, float]

SCALES: list[Range] = [(0.08, 1.0), (0.9, 1.0), (0.0, 0.001), (1.0, 1.0), (0.5, 4.0)]
RATIOS: list[Range] = [(3 / 4, 4 / 3), (1.0, 1.0), (0.1, 0.13), (7.5, 91.0), (0.01, 100.0)]
SIZES = {
    "usual": (180, 700),
    "tiny": (1, 6),
    "any": (1, 20_000),
    "huge": (1 << 22, 1 << 24),
}


def plain_area(
    scale: Range, ratio: Range, widths: Ints, heights: Ints, words: npt.NDArray[np.uint32]
) -> tuple[Ints, Ints]:
    """Boxes [N, 4], and the numbers of those that have no pixel."""
    tries = words[:, :20].astype(np.float64) * 2.0**-32
    full_width, full_height = widths[:, None], heights[:, None]
    low, high = scale
    area = (full_width * full_height) * (low + (high - low) * tries[:, 0::2])
    low, high = np.log(ratio)
    aspect = np.exp(low + (high - low) * tries[:, 1::2])
    all_widths = np.rint(np.sqrt(area * aspect)).astype(np.int64)
    all_heights = np.rint(np.sqrt(area / aspect)).astype(np.int64)
    fits = (all_widths > 0) & (all_widths <= full_width)
    fits &= (all_heights > 0) & (all_heights <= full_height)
    rows, first = np.arange(len(words)), fits.argmax(axis=1)
    found = fits[rows, first]

    low, high = ratio
    from_width = np.rint(widths / low).astype(np.int64)
    from_height = np.rint(heights * high).astype(np.int64)
    spare_width = np.where(widths / heights > high, from_height, widths)
    spare_height = np.where(widths / heights < low, from_width, heights)
    width = np.where(found, all_widths[rows, first], spare_width)
    height = np.where(found, all_heights[rows, first], spare_height)
    left = np.where(found, plain_place(words[:, 21], widths - width), (widths - width) // 2)
    top = np.where(found, plain_place(words[:, 20], heights - height), (heights - height) // 2)
    empty = np.flatnonzero((width < 1) | (height < 1))
    boxes = np.stack([left, top, width, height], axis=1)
    boxes[empty] = (0, 0, 1, 1)
    return boxes, empty


def plain_place(words: npt.NDArray[np.uint32], free: Ints) -> Ints:
    places = np.maximum(free, 0).astype(np.uint64) + np.uint64(1)
    return ((words.astype(np.uint64) * places) >> np.uint64(32)).astype(np.int64)


def plain_flip(axis: int, p: float, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    chance = words[:, 0].astype(np.float64) * 2.0**-32
    return np.where(chance < p, axis, 0).astype(np.uint8)


def check(windows: Windows, boxes: Ints, empty: Ints, flips: npt.NDArray[np.uint8]) -> None:
    flips[empty] = 0
    count = len(boxes)
    expected: list[tuple[Any, Any]] = [
        (windows.boxes, boxes.astype(np.int32)),
        (windows.resized, np.tile(np.array([30, 20, 0, 0], dtype=np.int32), (count, 1))),
        (windows.sizes, np.tile(np.array([30, 20], dtype=np.int32), (count, 1))),
        (windows.flips, flips),
    ]
    for got, wanted in expected:
        assert got.dtype == wanted.dtype and got.flags.c_contiguous
        np.testing.assert_array_equal(got, wanted)
    assert list(windows.refused) == empty.tolist()
    assert windows.padded == ()


@pytest.mark.parametrize("count", [0, 1, 256])
@pytest.mark.parametrize("sizes", SIZES)
def test_windows_are_those_of_the_plainest_way(sizes: str, count: int) -> None:
    rng = np.random.default_rng(count)
    low, high = SIZES[sizes]
    fallen_back = 0
    for seed, (scale, ratio) in enumerate((s, r) for s in SCALES for r in RATIOS):
        widths, heights = rng.integers(low, high + 1, (2, count))
        random = random_words(seed, count)
        p = (0.0, 0.5, 0.3, 1.0, 2.0**-33)[seed % 5]
        steps = (
            RandomArea(scale, ratio, 0), Resize(30, 20), Flip(LEFT_RIGHT, p, 3),
            Flip(TOP_BOTTOM, 0.5, 4),
        )  # fmt: skip
        windows = Geometry(steps, (30, 20)).draw(widths, heights, random)
        boxes, empty = plain_area(scale, ratio, widths, heights, random(0, 6))
        flips = plain_flip(1, p, random(3, 1)) ^ plain_flip(2, 0.5, random(4, 1))
        check(windows, boxes, empty, flips)
        fallen_back += len(empty)
    assert fallen_back or sizes != "tiny" or count < 256


def test_words_at_their_ends() -> None:
    widths, heights = np.array([500, 1, 33]), np.array([375, 1, 2])
    for word in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        words = np.full((3, 24), word, dtype=np.uint32)
        steps = (RandomArea((0.08, 1.0), (3 / 4, 4 / 3), 0), Resize(30, 20), Flip(1, 0.5, 1))
        windows = Geometry(steps, (30, 20)).draw(
            widths, heights, lambda _, blocks, words=words: words[:, : 4 * blocks]
        )
        boxes, empty = plain_area((0.08, 1.0), (3 / 4, 4 / 3), widths, heights, words)
        check(windows, boxes, empty, plain_flip(1, 0.5, words))


def test_the_native_part_checks_what_it_is_given() -> None:
    words, aspects = np.zeros((3, 24), dtype=np.uint32), np.ones((3, 10))
    sizes, boxes = np.ones((2, 3), dtype=np.int64), np.empty((4, 3), dtype=np.int64)
    ranges = ((0.08, 0.0), (1.0, 1.0))
    assert _native.choose_areas(words, aspects, sizes, *ranges, boxes)
    for bad in (
        (words[:, :21], aspects, sizes, *ranges, boxes),
        (words, aspects[:2], sizes, *ranges, boxes),
        (words, aspects, sizes[:, :2].copy(), *ranges, boxes),
        (words, aspects, sizes, *ranges, boxes[:, :2].copy()),
    ):
        with pytest.raises(ValueError, match=r"few words|expected 3"):
            _native.choose_areas(*bad)
    with pytest.raises(TypeError):
        _native.choose_areas(words, aspects[:, :9], sizes, *ranges, boxes)
    with pytest.raises(TypeError):
        _native.choose_areas(words, aspects, sizes, *ranges, boxes.astype(np.int32))
