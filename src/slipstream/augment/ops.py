"""Transforms by name, for those who do without torchvision. They mean what torchvision's mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

Size = int | tuple[int, int]


class Op:
    """A transform that the engine knows. Called with a Pillow picture or the result of the op
    before it, it does the same to that alone, with random numbers of torch's global generator.
    """

    def __call__(self, picture: Any) -> Any:
        """The transformed picture."""
        from slipstream.augment.single import apply_one

        return apply_one(self, picture)


@dataclass(frozen=True)
class RandomResizedCrop(Op):
    """A random part of the picture, of a random shape, resized to `size` (height, width)."""

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"


@dataclass(frozen=True)
class Resize(Op):
    """Resized: a number is the shorter side, a pair height and width."""

    size: Size
    interpolation: str = "bilinear"
    max_size: int | None = None


@dataclass(frozen=True)
class CenterCrop(Op):
    """The middle of the picture; black around it where the picture is smaller."""

    size: Size


@dataclass(frozen=True)
class RandomCrop(Op):
    """A part of this size, anywhere in the picture."""

    padding: ClassVar[None] = None
    pad_if_needed: ClassVar[bool] = False
    size: Size


@dataclass(frozen=True)
class RandomHorizontalFlip(Op):
    """Left and right exchanged, with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomVerticalFlip(Op):
    """Top and bottom exchanged, with probability `p`."""

    p: float = 0.5


@dataclass(frozen=True)
class ToTensor(Op):
    """float32[3, height, width] between 0 and 1."""


@dataclass(frozen=True)
class PILToTensor(Op):
    """uint8[3, height, width]."""


@dataclass(frozen=True)
class Normalize(Op):
    """(x - mean) / std of each channel, after ToTensor."""

    mean: Sequence[float]
    std: Sequence[float]
