"""Masks, boxes and points move as their picture does."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

import slipstream
from slipstream.augment import (
    CenterCrop,
    RandAugment,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
)
from slipstream.augment.followers import Followers, cut_mask, move_boxes, move_points
from slipstream.augment.geometry import Windows
from slipstream.augment.lowering import lower
from slipstream.augment.pillow import apply
from slipstream.errors import UsageError
from tests.augment.replay import random_words

FLIPS = [RandomHorizontalFlip(), RandomVerticalFlip()]
PIPELINES = {
    "train": [RandomResizedCrop((24, 31), scale=(0.05, 1.0)), *FLIPS],
    "enlarge": [RandomResizedCrop((90, 70), scale=(0.01, 0.1)), *FLIPS],
    "window": [Resize((40, 30)), RandomCrop((13, 9)), *FLIPS],
    "evaluate": [Resize(20), CenterCrop(16)],
    "padded": [CenterCrop(64), *FLIPS],
    "padded crop": [RandomCrop(24, padding=5), *FLIPS],
    "as it is": [*FLIPS],
}


def draw(pipeline: list[Any], width: int, height: int, count: int) -> Windows:
    geometry = lower(pipeline, exact=True).geometry
    return geometry.draw([width] * count, [height] * count, random_words(3, count))


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_masks_are_cut_as_pillow_does(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    mask = rng.integers(1, 256, (37, 53)).astype(dtype)
    windows = draw(PIPELINES[name], 53, 37, 40)
    for k in range(40):
        window = windows.row(k)
        nearest = type(window)(window.box, window.resized, window.size, window.flips, "nearest")
        truth = np.asarray(apply(nearest, Image.fromarray(mask)))
        cut = cut_mask(window, mask)
        assert cut.dtype == dtype
        assert (cut == truth).all(), (name, window)


def test_a_point_by_hand() -> None:
    # Columns 10 to 30 and rows 0 to 40 become 40 x 80; of these 20 x 20 from (4, 8), flipped.
    windows = Windows(
        boxes=np.array([[10, 0, 20, 40]] * 4, np.int32),
        resized=np.array([[40, 80, 4, 8]] * 4, np.int32),
        sizes=np.array([[20, 20]] * 4, np.int32),
        flips=np.array([0, 1, 2, 3], np.uint8),
        filter="bilinear",
        refused={},
        padded=(),
    )
    moved = move_points(windows, [0, 1, 2, 3], np.array([[15.0, 7.0]] * 4))
    assert moved.tolist() == [[6, 6], [14, 6], [6, 14], [14, 14]]
    boxes = move_boxes(windows, [0, 1, 2, 3], np.array([[15.0, 7.0, 17.0, 10.0]] * 4))
    assert boxes.tolist() == [[6, 6, 10, 12], [10, 6, 14, 12], [6, 8, 10, 14], [10, 8, 14, 14]]
    outside = np.array([[0.0, 0.0, 9.0, 5.0], [0.0, 0.0, 400.0, 400.0], [14.0, 5.0, 14.0, 5.0]])
    assert move_boxes(windows, [0, 0, 0], outside).tolist() == [
        [0, 0, 0, 2], [0, 0, 20, 20], [4, 2, 4, 2],
    ]  # fmt: skip
    assert move_points(windows, [0], np.array([[10.0, 0.0]])).tolist() == [[-4, -8]]


@pytest.mark.parametrize("name", PIPELINES)
def test_boxes_stand_around_what_they_stood_around(name: str) -> None:
    """A white rectangle in a mask is where its box says, to a pixel of the result."""
    mask = np.zeros((37, 53), np.uint8)
    mask[11:29, 20:41] = 255
    windows = draw(PIPELINES[name], 53, 37, 40)
    boxes = move_boxes(windows, np.arange(40), np.array([[20.0, 11.0, 41.0, 29.0]] * 40))
    for k, box in enumerate(boxes.tolist()):
        rows, columns = np.nonzero(cut_mask(windows.row(k), mask))
        if len(rows) == 0:
            area = (box[2] - box[0]) * (box[3] - box[1])
            assert area < 3 * max(windows.sizes[k])
            continue
        seen = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        scale = windows.resized[k, :2] / windows.boxes[k, 2:]
        assert (np.abs(np.subtract(box, seen)) <= max(1.0, *scale) / 2 + 0.5 + 1e-6).all()


def test_what_follows_is_told() -> None:
    augment = slipstream.Augment(Resize(8), ToTensor(), masks=["mask"], boxes=["a", "b"])
    lowered = lower(augment, exact=False)
    assert lowered.followers == Followers(("mask",), ("a", "b"))
    assert lowered.describe() == "engine: Resize(8), ToTensor; mask, a, b follow the picture"
    assert lower([augment], exact=False) == lowered


def unknown(picture: Any) -> Any:
    return picture


def test_what_cannot_be_followed() -> None:
    with pytest.raises(UsageError, match=r'masks is the text "mask", expected names: \("mask",\)'):
        slipstream.Augment(masks="mask")
    with pytest.raises(UsageError, match="not through unknown, which runs as given"):
        lower([slipstream.Augment(Resize(8), keypoints=["p"]), unknown], exact=False)
    with pytest.raises(UsageError, match=r"RandAugment, .* leave them out"):
        lower(slipstream.Augment(RandAugment(), masks=["mask"]), exact=False)
