"""The steps a geometry is made of: each moves a window over all pictures of a batch at once.

Randomness comes as words, `random(op, blocks)` -> uint32[N, 4 * blocks]: `op` is the step's place
in the user's pipeline, so a step's numbers do not change when another one is added behind it. A
word r stands for the number r / 2**32 in [0, 1): 32 bits, where torch uses 24. Which word is used
for what is part of each step's contract, so that another engine can draw the same windows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Random = Callable[[int, int], Words]

LEFT_RIGHT, TOP_BOTTOM = 1, 2
_WORD = 2.0**-32
_TRIES = 10
_AREA_BLOCKS = 6  # ten tries of two words, two for the place, two left over


class Canvas:
    """Where a batch stands: one window (x, y, width, height) per picture, and its flips.

    The window lies in the source picture until `resize`, in the resized one from then on. The
    picture at hand is the window's pixels, then flipped: a later crop is given in the flipped
    picture's coordinates and mirrored here. A window may reach over the edge: zeros lie there.
    """

    def __init__(self, widths: Ints, heights: Ints) -> None:
        self.x, self.y = np.zeros_like(widths), np.zeros_like(heights)
        self.width, self.height = widths, heights
        self.flips = np.zeros(len(widths), dtype=np.uint8)
        self.box: tuple[Ints, Ints, Ints, Ints] | None = None
        self.full: tuple[Ints, Ints] | None = None
        self.refused: dict[int, str] = {}

    def crop(self, left: Ints, top: Ints, width: Ints, height: Ints) -> None:
        """Go on with this part of the picture at hand."""
        mirrored = (self.flips & LEFT_RIGHT) != 0
        self.x = self.x + np.where(mirrored, self.width - left - width, left)
        mirrored = (self.flips & TOP_BOTTOM) != 0
        self.y = self.y + np.where(mirrored, self.height - top - height, top)
        self.width, self.height = width, height

    def resize(self, width: Ints, height: Ints) -> None:
        """Resize the picture at hand, which must be neither flipped nor resized before."""
        assert self.box is None and not self.flips.any()
        self.refuse((width < 1) | (height < 1), lambda _: "height and width must be > 0")
        self.box = (self.x, self.y, self.width, self.height)
        self.width, self.height = np.maximum(width, 1), np.maximum(height, 1)
        self.full = (self.width, self.height)
        self.x, self.y = np.zeros_like(width), np.zeros_like(height)

    def keep(self) -> None:
        """End without a resize: the window is the box, and the result its whole."""
        self.box = (self.x, self.y, self.width, self.height)
        self.full = (self.width, self.height)
        self.x, self.y = np.zeros_like(self.x), np.zeros_like(self.y)

    def refuse(self, where: npt.NDArray[np.bool_], reason: Callable[[int], str]) -> None:
        """Note why these samples have no result; the first reason of a sample stays."""
        for k in np.flatnonzero(where).tolist():
            self.refused.setdefault(k, reason(k))


class Step(Protocol):
    """One step of a geometry: frozen and picklable."""

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Move the windows of `canvas`."""
        ...


@dataclass(frozen=True)
class CenterCrop:
    """The middle of the picture; zeros around it where the picture is smaller."""

    width: int
    height: int

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Move the windows; takes no random words."""
        width, height = np.full_like(canvas.x, self.width), np.full_like(canvas.y, self.height)
        left, top = _middle(canvas.width, width), _middle(canvas.height, height)
        canvas.crop(left, top, width, height)


@dataclass(frozen=True)
class RandomCrop:
    """A window anywhere in the picture; a smaller picture is refused. Words: top, left."""

    width: int
    height: int
    op: int
    end: str = ""  # torchvision's two generations end the same message differently

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Move the windows."""
        words = random(self.op, 1)

        def too_large(k: int) -> str:
            have = (int(canvas.height[k]), int(canvas.width[k]))
            want = (self.height, self.width)
            return f"Required crop size {want} is larger than input image size {have}{self.end}"

        free_x, free_y = canvas.width - self.width, canvas.height - self.height
        canvas.refuse((free_x < 0) | (free_y < 0), too_large)
        top, left = _place(words[:, 0], free_y), _place(words[:, 1], free_x)
        width, height = np.full_like(left, self.width), np.full_like(top, self.height)
        canvas.crop(left, top, width, height)


@dataclass(frozen=True)
class RandomArea:
    """The crop of RandomResizedCrop: an area in `scale`, an aspect ratio (width / height) in
    `ratio`, log-uniform; the first of ten tries that fits, else the largest in the middle.

    Words: area and ratio of try t are 2 t and 2 t + 1; top is 20, left is 21.
    """

    scale: tuple[float, float]
    ratio: tuple[float, float]
    op: int

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Move the windows."""
        words = random(self.op, _AREA_BLOCKS)
        tries = words[:, : 2 * _TRIES].astype(np.float64) * _WORD
        full_width, full_height = canvas.width[:, None], canvas.height[:, None]
        low, high = self.scale
        area = (full_width * full_height) * (low + (high - low) * tries[:, 0::2])
        low, high = np.log(self.ratio)
        aspect = np.exp(low + (high - low) * tries[:, 1::2])
        widths = np.rint(np.sqrt(area * aspect)).astype(np.int64)
        heights = np.rint(np.sqrt(area / aspect)).astype(np.int64)
        fits = (widths > 0) & (widths <= full_width) & (heights > 0) & (heights <= full_height)

        rows, first = np.arange(len(words)), fits.argmax(axis=1)
        found = fits[rows, first]
        spare_width, spare_height = self._largest(canvas.width, canvas.height)
        width = np.where(found, widths[rows, first], spare_width)
        height = np.where(found, heights[rows, first], spare_height)
        free_x, free_y = canvas.width - width, canvas.height - height
        canvas.refuse((width < 1) | (height < 1), self._empty)
        left = np.where(found, _place(words[:, 21], free_x), free_x // 2)
        top = np.where(found, _place(words[:, 20], free_y), free_y // 2)
        canvas.crop(left, top, np.maximum(width, 1), np.maximum(height, 1))

    def _largest(self, width: Ints, height: Ints) -> tuple[Ints, Ints]:
        low, high = self.ratio
        ratio = width / height
        from_width = np.rint(width / low).astype(np.int64)
        from_height = np.rint(height * high).astype(np.int64)
        return np.where(ratio > high, from_height, width), np.where(ratio < low, from_width, height)

    def _empty(self, _: int) -> str:
        return f"RandomResizedCrop finds no pixel with an aspect ratio in {self.ratio}"


@dataclass(frozen=True)
class Flip:
    """A mirror image with probability `p`, along LEFT_RIGHT or TOP_BOTTOM. Words: the chance."""

    axis: int
    p: float
    op: int

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Flip the pictures at hand."""
        chance = random(self.op, 1)[:, 0].astype(np.float64) * _WORD
        canvas.flips ^= np.where(chance < self.p, self.axis, 0).astype(np.uint8)


@dataclass(frozen=True)
class Resize:
    """Resize to one size."""

    width: int
    height: int

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Resize the pictures at hand; takes no random words."""
        canvas.resize(np.full_like(canvas.x, self.width), np.full_like(canvas.y, self.height))


@dataclass(frozen=True)
class ResizeEdge:
    """Resize the shorter side to `short`, but the longer one to `longest` at most; with `short`
    None the longer one to `longest`. The aspect ratio stays, the other side is rounded down.
    """

    short: int | None
    longest: int | None

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Resize the pictures at hand; takes no random words."""
        canvas.resize(*self.target(canvas.width, canvas.height))

    def target(self, width: Ints, height: Ints) -> tuple[Ints, Ints]:
        """The sizes that pictures of these sizes get."""
        before_short, before_long = np.minimum(width, height), np.maximum(width, height)
        if self.short is None:
            assert self.longest is not None
            long = np.full_like(before_long, self.longest)
            short = (self.longest * before_short / before_long).astype(np.int64)
        else:
            short = np.full_like(before_short, self.short)
            long = (self.short * before_long / before_short).astype(np.int64)
            if self.longest is not None:
                over = long > self.longest
                short = np.where(over, (self.longest * short / long).astype(np.int64), short)
                long = np.where(over, self.longest, long)
        upright = width <= height
        return np.where(upright, short, long), np.where(upright, long, short)


def _middle(have: Ints, want: Ints) -> Ints:
    # Rounds halves to even, as Python's round does; padding puts the odd zero behind instead.
    inside = np.rint((have - want) / 2.0).astype(np.int64)
    return np.where(have < want, -((want - have) // 2), inside)


def _place(words: Words, free: Ints) -> Ints:
    """One of the places 0 to `free`, both ends with the same chance as the others."""
    places = np.maximum(free, 0).astype(np.uint64) + np.uint64(1)
    return ((words.astype(np.uint64) * places) >> np.uint64(32)).astype(np.int64)
