"""The windows are distributed as torchvision's are. Seeds are fixed: no test fails by chance."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from slipstream.augment.lowering import lower
from tests.augment.replay import random_words

COUNT = 40_000
THEIR_COUNT = 1_500  # torchvision draws one at a time
Floats = npt.NDArray[np.float64]


def ks_distance(left: Floats, right: Floats) -> float:
    """Kolmogorov-Smirnov's: the largest distance of the two distribution functions."""
    both = np.concatenate([left, right])
    ranks = (
        np.searchsorted(np.sort(part), both, side="right") / len(part) for part in (left, right)
    )
    return float(np.abs(np.subtract(*ranks)).max())


def alike(left: Floats, right: Floats) -> bool:
    """At the level 0.001. Ties only make the distance smaller, so whole numbers will do."""
    return ks_distance(left, right) < 1.95 * np.sqrt(1 / len(left) + 1 / len(right))


def even(counts: npt.NDArray[np.int64]) -> bool:
    """Chi-square at the level 0.001, by Wilson and Hilferty's approximation."""
    expected, free = counts.sum() / len(counts), len(counts) - 1
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    return chi_square < free * (1 - 2 / (9 * free) + 3.09 * np.sqrt(2 / (9 * free))) ** 3


def boxes(transform: Any, width: int, height: int, seed: int = 0) -> npt.NDArray[np.int32]:
    geometry = lower(transform, exact=True).geometry
    random = random_words(seed, COUNT)
    return geometry.draw([width] * COUNT, [height] * COUNT, random).boxes


def torchvisions(transform: Any, width: int, height: int) -> npt.NDArray[np.int64]:
    """x, y, width, height by the transform's own get_params and torch's random numbers."""
    picture = Image.new("RGB", (width, height))
    torch.manual_seed(0)
    rows = [
        transform.get_params(picture, transform.scale, transform.ratio) for _ in range(THEIR_COUNT)
    ]
    top, left, h, w = np.array(rows).T
    return np.stack([left, top, w, h], axis=1)


CASES = {
    "usual": ((500, 375), (0.08, 1.0), (3 / 4, 4 / 3)),
    "tall": ((100, 400), (0.3, 1.0), (3 / 4, 4 / 3)),  # falls back often
    "wide": ((800, 90), (0.5, 1.0), (0.5, 2.0)),
    "small": ((9, 7), (0.08, 1.0), (3 / 4, 4 / 3)),
    "one ratio": ((300, 200), (0.1, 0.4), (1.0, 1.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_random_resized_crop(lib: SimpleNamespace, case: str) -> None:
    (width, height), scale, ratio = CASES[case]
    transform = lib.v1.RandomResizedCrop(24, scale=scale, ratio=ratio)
    mine = boxes(transform, width, height).astype(np.float64)
    theirs = torchvisions(transform, width, height).astype(np.float64)
    for what in (
        lambda b: b[:, 2] * b[:, 3],  # area
        lambda b: np.log(b[:, 2] / b[:, 3]),
        lambda b: b[:, 0],
        lambda b: b[:, 1],
        lambda b: b[:, 2] + 1000 * b[:, 0],  # place, given the size
        lambda b: (b[:, 0] + 0.5) / (width - b[:, 2] + 1),
        lambda b: (b[:, 1] + 0.5) / (height - b[:, 3] + 1),
    ):
        assert alike(what(mine), what(theirs))
    assert (mine[:, :2] >= 0).all() and (mine[:, :2] + mine[:, 2:] <= (width, height)).all()


def test_fallbacks_are_as_frequent(lib: SimpleNamespace) -> None:
    (width, height), scale, ratio = CASES["tall"]
    transform = lib.v1.RandomResizedCrop(24, scale=scale, ratio=ratio)
    w = width
    fallback = [(height - round(w / ratio[0])) // 2, round(w / ratio[0])]
    shares = [
        ((b[:, 2] == w) & (b[:, [1, 3]] == fallback).all(axis=1)).mean()
        for b in (boxes(transform, width, height), torchvisions(transform, width, height))
    ]
    assert 0.3 < shares[0] < 0.99
    assert abs(shares[0] - shares[1]) < 4 * np.sqrt(0.25 / THEIR_COUNT)


def test_the_tests_can_tell_distributions_apart(lib: SimpleNamespace) -> None:
    usual = boxes(lib.v1.RandomResizedCrop(24), 500, 375).astype(np.float64)
    near = boxes(lib.v1.RandomResizedCrop(24, scale=(0.12, 1.0)), 500, 375).astype(np.float64)
    assert not alike(usual[:, 2] * usual[:, 3], near[:, 2] * near[:, 3])
    assert not even(np.array([1000, 1000, 1000, 1200]))


def test_random_crop_reaches_every_place_alike(lib: SimpleNamespace) -> None:
    for generation in (lib.v1, lib.v2):
        found = boxes(generation.RandomCrop((24, 30)), 39, 31)
        assert even(np.bincount(found[:, 0], minlength=10))
        assert even(np.bincount(found[:, 1], minlength=8))
        assert even(np.bincount(found[:, 0] * 8 + found[:, 1], minlength=80))
        assert found[:, 0].max() == 9 and found[:, 1].max() == 7
        assert (found[:, 2:] == (30, 24)).all()


def test_the_ends_of_the_words_reach_the_ends_of_the_places(lib: SimpleNamespace) -> None:
    geometry = lower(
        [
            lib.v1.RandomCrop(24),
            lib.v1.RandomHorizontalFlip(1.0),
            lib.v1.RandomVerticalFlip(0.0),
        ],
        exact=True,
    ).geometry
    for word, place in ((0, 0), (2**32 - 1, 6)):
        windows = geometry.draw(
            [30], [30], lambda _, n, word=word: np.full((1, 4 * n), word, np.uint32)
        )
        assert windows.boxes.tolist() == [[place, place, 24, 24]]
        assert windows.flips.tolist() == [1]  # p = 1 flips always, p = 0 never


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_flips(lib: SimpleNamespace, p: float) -> None:
    parts = [lib.v1.RandomHorizontalFlip(p), lib.v2.RandomVerticalFlip(0.5)]
    geometry = lower(parts, exact=True).geometry
    flips = geometry.draw([9] * COUNT, [9] * COUNT, random_words(1, COUNT)).flips
    across, down = (flips & 1) != 0, (flips & 2) != 0
    assert abs(across.mean() - p) <= 4 * np.sqrt(p * (1 - p) / COUNT)
    assert abs(down.mean() - 0.5) < 4 * np.sqrt(0.25 / COUNT)
    assert abs((across & down).mean() - p / 2) <= 4 * np.sqrt(0.25 * p / COUNT)


def test_numbers_do_not_move_when_a_transform_is_added(lib: SimpleNamespace) -> None:
    t = lib.v1
    short = [t.RandomCrop(24), t.RandomHorizontalFlip()]
    random = random_words(3, 50)
    draws = [
        lower(parts, exact=True).geometry.draw([40] * 50, [30] * 50, random)
        for parts in (short, [*short, t.RandomVerticalFlip(), t.RandomCrop(24)])
    ]
    assert draws[0].boxes.tolist() == draws[1].boxes.tolist()
    assert (draws[0].flips == draws[1].flips & 1).all()


@pytest.mark.parametrize("fits", [0, 9, 10])
def test_ten_tries_then_the_middle(lib: SimpleNamespace, fits: int) -> None:
    words = np.full((1, 24), 2**32 - 1, np.uint32)  # the whole area at 4:3, too wide for a square
    words[0, 2 * fits : 2 * fits + 2] = 0
    transform = lib.v1.RandomResizedCrop(8, scale=(0.25, 1.0), ratio=(0.25, 4 / 3))
    windows = lower(transform, exact=True).geometry.draw([64], [64], lambda *_: words)
    # A quarter of the area at 1:4 is 16 by 64, and the last word puts it at the right end.
    assert windows.boxes.tolist() == [[48, 0, 16, 64] if fits < 10 else [0, 0, 64, 64]]


def test_ratios_that_no_pixel_has_are_refused(lib: SimpleNamespace) -> None:
    transform = lib.v1.RandomResizedCrop(8, ratio=(5.0, 9.0))
    windows = lower(transform, exact=True).geometry.draw([1, 90], [40, 40], random_words(0, 2))
    assert list(windows.refused) == [0] and "aspect ratio" in windows.refused[0]
