"""The steps a geometry is made of: each moves a window over all pictures of a batch at once.

Randomness comes as words, `random(op, blocks)` -> uint32[N, 4 * blocks]: `op` is the step's place
in the user's pipeline, so a step's numbers do not change when another one is added behind it. A
word r stands for the number r / 2**32 in [0, 1): 32 bits, where torch uses 24. Which word is used
for what is part of each step's contract, so that another engine can draw the same windows.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from slipstream import _native

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint32]
Random = Callable[[int, int], Words]

LEFT_RIGHT, TOP_BOTTOM = 1, 2
_FLIPS = np.array([LEFT_RIGHT, TOP_BOTTOM], dtype=np.uint8)
_WORDS = 2.0**32  # so many there are; by a power of two, numbers are scaled without rounding
_TRIES = 10
_AREA_BLOCKS = 6  # ten tries of two words, two for the place, two left over


class Canvas:
    """Where a batch stands: one window per picture, and its flips. Arrays [2, N] hold what is
    across, then what is down: `place` is (x, y) of the windows, `size` (width, height).

    The window lies in the source picture until `resize`, in the resized one from then on. The
    picture at hand is the window's pixels, then flipped: a later crop is given in the flipped
    picture's coordinates and mirrored here. A window may reach over the edge: zeros lie there.
    """

    def __init__(self, size: Ints) -> None:
        self._origin = np.zeros(size.shape, dtype=np.int64)
        self.place, self.size = self._origin, size
        self.flips = np.zeros(size.shape[1], dtype=np.uint8)
        self.box: tuple[Ints, Ints] | None = None  # place and size of the part that is resized
        self.full: Ints | None = None  # the size that it is given
        self.refused: dict[int, str] = {}
        self._is_flipped = False

    def crop(self, place: Ints, size: Ints) -> None:
        """Go on with this part of the picture at hand."""
        if self._is_flipped:
            mirrored = (self.flips & _FLIPS[:, None]) != 0
            place = np.where(mirrored, self.size - place - size, place)
        self.place = place if self.place is self._origin else self.place + place
        self.size = size

    def resize(self, size: Ints) -> None:
        """Resize the picture at hand, which must be neither flipped nor resized before."""
        assert self.box is None and not self._is_flipped
        too_small = size < 1
        if too_small.any():
            self.refuse(too_small, lambda _: "height and width must be > 0")
            size = np.maximum(size, 1)
        self.box = (self.place, self.size)
        self.size = self.full = size
        self.place = self._origin

    def flip(self, chosen: Bools, axis: int) -> None:
        """Mirror the pictures `chosen`."""
        self.flips ^= np.multiply(chosen, axis, dtype=np.uint8)
        self._is_flipped = True

    def keep(self) -> None:
        """End without a resize: the window is the box, and the result its whole."""
        self.box, self.full = (self.place, self.size), self.size
        self.place = self._origin

    def refuse(self, sides: Bools, reason: Callable[[int], str]) -> None:
        """Note why these samples, by either side, have no result; a sample's first reason stays."""
        for k in np.flatnonzero(sides[0] | sides[1]).tolist():
            self.refused.setdefault(k, reason(k))

    def clear_refused(self, size: tuple[int, int]) -> None:
        """Give refused samples a window of one pixel that becomes this size."""
        assert self.box is not None and self.full is not None
        refused = list(self.refused)
        # Copies: arrays may be shared, with each other or with who gave them.
        self.box = (self.box[0].copy(), self.box[1].copy())
        self.box[0][:, refused], self.box[1][:, refused] = 0, 1
        self.size, self.full, self.place = self.size.copy(), self.full.copy(), self.place.copy()
        self.size[:, refused] = self.full[:, refused] = np.array(size)[:, None]
        self.place[:, refused] = 0
        self.flips[refused] = 0


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
        size = _alike(canvas.size, self.width, self.height)
        canvas.crop(_middle(canvas.size, size), size)


@dataclass(frozen=True)
class RandomCrop:
    """A window anywhere in the picture, with zeros around it: `padding` is (left, top, right,
    bottom). A smaller picture is refused. Words: top, left.
    """

    width: int
    height: int
    op: int
    end: str = ""  # torchvision's two generations end the same message differently
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Move the windows."""
        words = random(self.op, 1)
        around = np.array(self.padding, dtype=np.int64).reshape(2, 2, 1)
        whole = canvas.size + around.sum(axis=0)

        def too_large(k: int) -> str:
            have = (int(whole[1, k]), int(whole[0, k]))
            want = (self.height, self.width)
            return f"Required crop size {want} is larger than input image size {have}{self.end}"

        size = _alike(canvas.size, self.width, self.height)
        free = whole - size
        canvas.refuse(free < 0, too_large)
        canvas.crop(_place(words.T[1::-1], free) - around[0], size)


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
        low, step = _log_steps(self.ratio)
        aspects = np.multiply(words[:, 1 : 2 * _TRIES : 2], step, order="C")
        aspects += low
        # By NumPy, as ever: the last bits of another library's exponential may be others.
        aspects = np.exp(aspects)
        boxes = np.empty((4, len(words)), dtype=np.int64)
        place, size = boxes[:2], boxes[2:]
        scale = _steps(*self.scale)
        if not _native.choose_areas(words, aspects, canvas.size, scale, self.ratio, boxes):
            canvas.refuse(size < 1, self._empty)
            np.maximum(size, 1, out=size)
        canvas.crop(place, size)

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
        canvas.flip(random(self.op, 1)[:, 0] < self.p * _WORDS, self.axis)


@dataclass(frozen=True)
class Resize:
    """Resize to one size."""

    width: int
    height: int

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Resize the pictures at hand; takes no random words."""
        canvas.resize(_alike(canvas.size, self.width, self.height))


@dataclass(frozen=True)
class ResizeEdge:
    """Resize the shorter side to `short`, but the longer one to `longest` at most; with `short`
    None the longer one to `longest`. The aspect ratio stays, the other side is rounded down.
    """

    short: int | None
    longest: int | None

    def draw(self, canvas: Canvas, random: Random) -> None:
        """Resize the pictures at hand; takes no random words."""
        canvas.resize(np.stack(self.target(*canvas.size)))

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


def _steps(low: float, high: float) -> tuple[float, float]:
    """A range as where it begins and what a word adds."""
    return low, (high - low) / _WORDS


@functools.lru_cache
def _log_steps(ratio: tuple[float, float]) -> tuple[float, float]:
    low, high = np.log(ratio).tolist()
    return _steps(low, high)


def _alike(like: Ints, width: int, height: int) -> Ints:
    sizes = np.empty_like(like)
    sizes[0], sizes[1] = width, height
    return sizes


def _middle(have: Ints, want: Ints) -> Ints:
    # Rounds halves to even, as Python's round does; padding puts the odd zero behind instead.
    inside = np.rint((have - want) / 2.0).astype(np.int64)
    return np.where(have < want, -((want - have) // 2), inside)


def _place(words: Words, free: Ints) -> Ints:
    """One of the places 0 to `free`, both ends with the same chance as the others."""
    places = np.maximum(free, 0).astype(np.uint64) + np.uint64(1)
    return ((words * places) >> np.uint64(32)).astype(np.int64)
