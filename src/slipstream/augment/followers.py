"""Fields that move with the pictures: masks, boxes and points, as numbers of `Windows` say.

Coordinates are continuous, from 0 at a picture's left or top edge to its width or height at the
other: the middle of the first pixel is at 0.5.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.augment.geometry import Window, Windows
from slipstream.augment.steps import LEFT_RIGHT, TOP_BOTTOM
from slipstream.errors import UsageError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Followers:
    """Names of such fields.

    >>> Followers(masks=("mask",), boxes=("boxes",)).describe()
    'mask, boxes follow the picture'
    """

    masks: tuple[str, ...] = ()
    boxes: tuple[str, ...] = ()
    keypoints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in ("masks", "boxes", "keypoints"):
            if isinstance(getattr(self, kind), str):
                name = getattr(self, kind)
                raise UsageError(f'{kind} is the text "{name}", expected names: ("{name}",).')

    @property
    def names(self) -> tuple[str, ...]:
        """Of all kinds."""
        return (*self.masks, *self.boxes, *self.keypoints)

    def __bool__(self) -> bool:
        return bool(self.names)

    def describe(self) -> str:
        """In a few words."""
        return f"{', '.join(self.names)} follow the picture"

    @classmethod
    def together(cls, parts: Iterable["Followers"]) -> "Followers":
        """Those of several."""
        every = list(parts)
        return cls(
            tuple(name for part in every for name in part.masks),
            tuple(name for part in every for name in part.boxes),
            tuple(name for part in every for name in part.keypoints),
        )


def cut_mask(window: Window, mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The window of one mask [H, W, …], by the nearest values, as Pillow's; 0 where it reaches
    outside.

    >>> cut_mask(Window((0, 0, 2, 1), (4, 2, 0, 0), (4, 2), 1, "bilinear"), np.array([[3, 5]]))
    array([[5, 5, 3, 3],
           [5, 5, 3, 3]])
    """
    columns, no_column = _nearest(window, 0, mask.shape[1], LEFT_RIGHT)
    rows, no_row = _nearest(window, 1, mask.shape[0], TOP_BOTTOM)
    cut = mask[rows[:, None], columns]
    cut[no_row] = 0
    cut[:, no_column] = 0
    return cut


def _nearest(
    window: Window, axis: int, length: int, mirrored: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The source's number for each pixel of the result along an axis; and which have none."""
    first, size = window.box[axis], window.box[axis + 2]
    full, start, count = window.resized[axis], window.resized[axis + 2], window.size[axis]
    steps = np.full(full, size / full)
    steps[0] /= 2
    # Added up one by one as Pillow does: products would fall to the other side of some pixels.
    nearest = np.floor(np.add.accumulate(steps)).astype(np.int64)
    resized = np.arange(start, start + count)
    numbers = first + nearest[np.clip(resized, 0, full - 1)]
    missing = (resized < 0) | (resized >= full) | (numbers < 0) | (numbers >= length)
    if window.flips & mirrored:
        numbers, missing = numbers[::-1], missing[::-1]
    return np.clip(numbers, 0, length - 1), missing


def move_points(windows: Windows, samples: npt.ArrayLike, points: Floats) -> Floats:
    """Points [M, 2] (x, y) of the pictures `samples` [M], in the results' coordinates. Points
    outside of a result stay where they are, outside.
    """
    rows = np.asarray(samples, dtype=np.int64)
    boxes, resized = windows.boxes[rows].astype(np.float64), windows.resized[rows]
    moved = (points - boxes[:, :2]) * (resized[:, :2] / boxes[:, 2:]) - resized[:, 2:]
    for axis, mirrored in ((0, LEFT_RIGHT), (1, TOP_BOTTOM)):
        flipped = (windows.flips[rows] & mirrored) != 0
        mirror = windows.sizes[rows, axis] - moved[:, axis]
        moved[:, axis] = np.where(flipped, mirror, moved[:, axis])
    return np.asarray(moved)


def move_boxes(windows: Windows, samples: npt.ArrayLike, boxes: Floats) -> Floats:
    """Boxes [M, 4] (left, top, right, bottom) of the pictures `samples` [M], clipped to their
    results. One that lies outside stays, with no area, at the edge.
    """
    rows = np.asarray(samples, dtype=np.int64)
    corners = [move_points(windows, rows, part) for part in (boxes[:, :2], boxes[:, 2:])]
    limits = windows.sizes[rows]
    least, most = (pick(*corners) for pick in (np.minimum, np.maximum))
    return np.concatenate([np.clip(end, 0, limits) for end in (least, most)], axis=1)
