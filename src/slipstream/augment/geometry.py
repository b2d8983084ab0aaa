"""Which pixels of a picture a pipeline takes: crops, at most one resize, flips, as plain numbers.

A geometry is crops of the source, then at most one resize, then crops of the result, then flips.
`Geometry.draw` turns it into numbers for a whole batch; the engine, or `slipstream.augment.pillow`
for one picture, turns the numbers into pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipstream.augment.steps import Canvas, Ints, Random, Step


@dataclass(frozen=True)
class Window:
    """One sample of `Windows`, as plain numbers.

    `box` (x, y, width, height) of the source is resized to the first two of `resized` (width,
    height, left, top); the part of `size` (width, height) at (left, top) is taken and flipped, bit
    0 of `flips` left-right, bit 1 top-bottom. What lies outside of a picture is black.
    """

    box: tuple[int, int, int, int]
    resized: tuple[int, int, int, int]
    size: tuple[int, int]
    flips: int
    filter: str


@dataclass(frozen=True, eq=False)
class Windows:
    """What to take of each picture of a batch of N; a row of the arrays is a `Window`.

    `refused` samples have no result: torchvision would raise this text; their rows hold a window
    of one pixel. `padded` samples reach over the edge of the picture: the engine cannot do them,
    `slipstream.augment.pillow.apply` can. All others lie inside.
    """

    boxes: npt.NDArray[np.int32]  # [N, 4] x, y, width, height in the source
    resized: npt.NDArray[np.int32]  # [N, 4] width, height of the resized box; left, top in it
    sizes: npt.NDArray[np.int32]  # [N, 2] width, height of the result
    flips: npt.NDArray[np.uint8]  # [N] bit 0 left-right, bit 1 top-bottom
    filter: str
    refused: dict[int, str]
    padded: tuple[int, ...]

    def at(self, places: Sequence[int]) -> "Windows":
        """Those of some samples, in their order."""
        number = {place: k for k, place in enumerate(places)}
        return Windows(
            self.boxes[places], self.resized[places], self.sizes[places], self.flips[places],
            self.filter,
            {number[k]: reason for k, reason in self.refused.items() if k in number},
            tuple(number[k] for k in self.padded if k in number),
        )  # fmt: skip

    def row(self, k: int) -> Window:
        """The numbers of sample `k` of the batch."""
        x, y, width, height = self.boxes[k].tolist()
        full_width, full_height, left, top = self.resized[k].tolist()
        return Window(
            (x, y, width, height),
            (full_width, full_height, left, top),
            (int(self.sizes[k, 0]), int(self.sizes[k, 1])),
            int(self.flips[k]),
            self.filter,
        )


@dataclass(frozen=True)
class Geometry:
    """A plan of crops, one resize and flips. Picklable; equal plans compare equal.

    `size` (width, height) is that of every result, or None where each picture has its own; then
    the result is the whole resized box. `filter` is one of `slipstream.store.images.FILTERS`.

    >>> from slipstream.augment.steps import CenterCrop, ResizeEdge
    >>> plan = Geometry((ResizeEdge(256, None), CenterCrop(224, 224)), (224, 224))
    >>> windows = plan.draw(np.array([500]), np.array([375]), no_random)
    >>> windows.boxes.tolist(), windows.resized.tolist()
    ([[0, 0, 500, 375]], [[341, 256, 58, 16]])
    """

    steps: tuple[Step, ...] = ()
    size: tuple[int, int] | None = None
    filter: str = "bilinear"

    def draw(self, widths: npt.ArrayLike, heights: npt.ArrayLike, random: Random) -> Windows:
        """Choose the window of each picture of a batch.

        `widths` and `heights` are integers [N]; `random(op, blocks)` gives uint32[N, 4 * blocks],
        for each picture its own words, the same at every call with the same arguments. It is not
        called where nothing is random.
        """
        source = np.empty((2, len(np.asarray(widths))), dtype=np.int64)
        source[0], source[1] = widths, heights
        canvas = Canvas(source)
        for step in self.steps:
            step.draw(canvas, random)
        if canvas.box is None:
            canvas.keep()
        if canvas.refused:
            canvas.clear_refused(self.size or (1, 1))
        assert canvas.box is not None and canvas.full is not None
        outside = _reaches_over(*canvas.box, source)
        outside |= _reaches_over(canvas.place, canvas.size, canvas.full)
        sides = np.concatenate(
            [*canvas.box, canvas.full, canvas.place, canvas.size], dtype=np.int32, casting="unsafe"
        )
        return Windows(
            boxes=sides[:4].T.copy(),
            resized=sides[4:8].T.copy(),
            sizes=sides[8:].T.copy(),
            flips=canvas.flips,
            filter=self.filter,
            refused=canvas.refused,
            padded=tuple((outside[0] | outside[1]).nonzero()[0].tolist()),
        )


def _reaches_over(place: Ints, size: Ints, whole: Ints) -> npt.NDArray[np.bool_]:
    over: npt.NDArray[np.bool_] = place + size > whole
    over |= place < 0
    return over


def no_random(op: int, blocks: int) -> npt.NDArray[np.uint32]:
    """The random numbers of a geometry that has nothing random: asking for some is an error."""
    raise AssertionError(f"op {op} asks for {blocks} blocks of random words")
