"""Transforms by name, for those who do without torchvision. They mean what torchvision's mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from slipstream.augment.draft import Draft
from slipstream.augment.finish import Finish
from slipstream.augment.rules import check_arguments
from slipstream.errors import UsageError

Size = int | tuple[int, int]
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class Op:
    """A transform that the engine knows. Called with a Pillow picture or the result of the op
    before it, it does the same to that alone, with random numbers of torch's global generator.
    """

    def __post_init__(self) -> None:
        check_arguments(self)

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
    """A part of this size, anywhere in the picture with `padding` pixels of black around it: one
    number, (left and right, top and bottom), or (left, top, right, bottom).
    """

    pad_if_needed: ClassVar[bool] = False
    size: Size
    padding: int | tuple[int, int] | tuple[int, int, int, int] | None = None


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
    """Floats[3, height, width] between 0 and 1, of type `dtype`; batches in `memory_format`.

    All that follows is computed in float32 and rounded once, in the end.

    >>> ToTensor(torch.float16, torch.channels_last)
    ToTensor(dtype=torch.float16, memory_format=torch.channels_last)
    """

    dtype: torch.dtype = torch.float32
    memory_format: torch.memory_format = torch.contiguous_format

    def __post_init__(self) -> None:
        if self.dtype not in _FLOATS:
            raise UsageError(
                f"ToTensor's dtype is {self.dtype!r}, expected torch.float32, torch.float16 or"
                " torch.bfloat16. PILToTensor gives bytes."
            )
        if self.memory_format not in (torch.contiguous_format, torch.channels_last):
            raise UsageError(
                "ToTensor's memory_format is torch.contiguous_format or torch.channels_last, got"
                f" {self.memory_format}."
            )


@dataclass(frozen=True)
class PILToTensor(Op):
    """uint8[3, height, width]."""


@dataclass(frozen=True)
class Normalize(Op):
    """(x - mean) / std of each channel, after ToTensor."""

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        check_arguments(self, Draft(exact=True, finish=Finish("float")))
