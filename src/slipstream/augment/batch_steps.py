"""Steps that run on a whole batch of pictures, after the geometry: drawn first, then applied.

A step draws the parameters of all pictures from random words (see `steps`) as small tensors in the
processor's memory, each with one row a picture. Applied with these it does the same on any device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch

from slipstream.augment import color, space
from slipstream.augment.draws import one_of, uniform, unit
from slipstream.augment.steps import Random
from slipstream.errors import UsageError

Parameters = Mapping[str, torch.Tensor]
Range = tuple[float, float]

_TRIES = 10
_ERASE_BLOCKS = 6  # ten tries of two words, two for the place, one for the chance, one left over


class BatchStep(Protocol):
    """One step: frozen and picklable."""

    # Each pixel of the result is made of one pixel of its picture, the same or its mirror image, of
    # the same of the one before in the batch, and of numbers of the whole picture, as its mean.
    is_pointwise: ClassVar[bool]
    # Flipping the picture before or after makes no difference.
    allows_flips: ClassVar[bool]

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """Parameters for pictures of this size, [N, …] each."""
        ...

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """The result for pixels [N, 3, H, W], which stay as they are; of the same type."""
        ...


@dataclass(frozen=True)
class Jitter:
    """Brightness, contrast, saturation and hue, in an order drawn for each picture. A range that
    is None is left out.

    Words: the four amounts, then four whose order is the order of the changes. Parameters:
    `amounts` float32[N, 4], in the sequence above, and `order` int64[N, 4]: which comes when.
    """

    is_pointwise: ClassVar[bool] = True
    allows_flips: ClassVar[bool] = True
    ranges: tuple[Range | None, Range | None, Range | None, Range | None]
    op: int

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """Amounts and order."""
        words = random(self.op, 2)
        amounts = [
            uniform(words[:, k], *(range_ or (0.0, 0.0))) for k, range_ in enumerate(self.ranges)
        ]
        order = np.argsort(words[:, 4:], axis=1, kind="stable")
        return {
            "amounts": torch.from_numpy(np.stack(amounts, axis=1).astype(np.float32)),
            "order": torch.from_numpy(order.astype(np.int64)),
        }

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """Each change on the pictures whose turn it is."""
        # Channels apart: colours are made of whole planes.
        pixels = pixels.clone(memory_format=torch.contiguous_format)
        for turn in range(4):
            for k, change in enumerate(_CHANGES):
                rows = torch.nonzero(drawn["order"][:, turn] == k).view(-1)
                if self.ranges[k] is not None and len(rows):
                    apply_to_rows(pixels, rows, change, drawn["amounts"][rows, k])
        return pixels


_CHANGES = (
    color.adjust_brightness, color.adjust_contrast, color.adjust_saturation, color.adjust_hue,
)  # fmt: skip


@dataclass(frozen=True)
class Grayscale:
    """Grey with probability `p`. Words: the chance. Parameters: `chosen` bool[N]."""

    is_pointwise: ClassVar[bool] = True
    allows_flips: ClassVar[bool] = True
    p: float
    op: int

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """Which pictures."""
        return {"chosen": torch.from_numpy(unit(random(self.op, 1)[:, 0]) < self.p)}

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """These turned grey."""
        rows = torch.nonzero(drawn["chosen"]).view(-1)
        if len(rows) == 0:
            return pixels
        pixels = pixels.clone()
        apply_to_rows(pixels, rows, lambda chosen, _: color.grayscale(chosen), rows)
        return pixels


@dataclass(frozen=True)
class Mirror:
    """A flip along `axis` with probability `p`, behind steps that a flip cannot come before; or,
    without an axis, flips that a geometry drew.

    Words: the chance. Parameters: `flips` uint8[N], bit 0 left-right, bit 1 top-bottom.
    """

    is_pointwise: ClassVar[bool] = True
    allows_flips: ClassVar[bool] = True
    axis: int = 0
    p: float = 0.0
    op: int = 0

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """Which pictures, from the word that `steps.Flip` takes."""
        assert self.axis, "flips are drawn by their geometry"
        chosen = unit(random(self.op, 1)[:, 0]) < self.p
        return {"flips": torch.from_numpy(np.multiply(chosen, self.axis, dtype=np.uint8))}

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """The pictures whose turn it is, flipped."""
        flips = drawn["flips"]
        if not flips.any():
            return pixels
        pixels = pixels.clone()
        for bit, axis in ((1, 3), (2, 2)):
            rows = torch.nonzero(flips & bit).view(-1)
            apply_to_rows(pixels, rows, lambda chosen, _, axis=axis: chosen.flip(axis), rows)
        return pixels


@dataclass(frozen=True)
class Blur:
    """A Gaussian blur. Words: sigma. Parameters: `sigma` float32[N]."""

    is_pointwise: ClassVar[bool] = False
    allows_flips: ClassVar[bool] = False
    kernel_size: tuple[int, int]
    sigma: Range
    op: int

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """How much. Raises `UsageError` where the kernel reaches over the mirror image."""
        across, down = self.kernel_size
        if across // 2 >= width or down // 2 >= height:
            raise UsageError(
                f"GaussianBlur: kernel_size {self.kernel_size} is too large for pictures of {width}"
                f" x {height}: half of it must be less than the side."
            )
        sigma = uniform(random(self.op, 1)[:, 0], *self.sigma)
        return {"sigma": torch.from_numpy(sigma.astype(np.float32))}

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """All blurred."""
        return space.gaussian_blur(pixels, self.kernel_size, drawn["sigma"])


@dataclass(frozen=True)
class Erase:
    """A box of one colour with probability `p`: an area in `scale`, a ratio (height / width) in
    `ratio`, log-uniform; the first of ten tries that is smaller than the picture, else none.

    Words: area and ratio of try t are 2 t and 2 t + 1; top is 20, left is 21, the chance 22.
    Parameters: `boxes` int64[N, 4] (left, top, width, height), 0 wide where nothing is erased.
    """

    is_pointwise: ClassVar[bool] = True
    allows_flips: ClassVar[bool] = False
    p: float
    scale: Range
    ratio: Range
    value: tuple[float, float, float]
    op: int

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """Where."""
        words = random(self.op, _ERASE_BLOCKS)
        area = height * width * uniform(words[:, 0 : 2 * _TRIES : 2], *self.scale)
        low, high = np.log(self.ratio)
        aspect = np.exp(uniform(words[:, 1 : 2 * _TRIES : 2], low, high))
        down = np.rint(np.sqrt(area * aspect)).astype(np.int64)
        across = np.rint(np.sqrt(area / aspect)).astype(np.int64)
        fits = (down < height) & (across < width)
        rows, first = np.arange(len(words)), fits.argmax(axis=1)
        chosen = fits[rows, first] & (unit(words[:, 22]) < self.p)
        down, across = (np.where(chosen, side[rows, first], 0) for side in (down, across))
        top, left = (
            one_of(words[:, 20], height - down + 1),
            one_of(words[:, 21], width - across + 1),
        )
        return {"boxes": torch.from_numpy(np.stack([left, top, across, down], axis=1))}

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """Filled."""
        return space.erase(pixels, drawn["boxes"], torch.tensor(self.value))


class Change(Protocol):
    """A function of `color` or `space` that takes one parameter a picture."""

    def __call__(self, pixels: torch.Tensor, amount: torch.Tensor, /) -> torch.Tensor:
        """The changed pictures."""
        ...


def apply_to_rows(
    pixels: torch.Tensor, rows: torch.Tensor, change: Change, amount: torch.Tensor
) -> None:
    """Change some pictures of a batch in their place. `rows` and `amount` are in the processor's
    memory, so that nobody waits for a GPU to learn how many they are.
    """
    where = rows.to(pixels.device, non_blocking=True)
    pixels.index_copy_(0, where, change(pixels.index_select(0, where), amount))
