"""Bytes, 0 to 255, and floats, 0 to 1: what functions on pictures [N, 3, H, W] do with either."""

import torch

# As torchvision turns floats into bytes: the largest float below 256 at 1.
_ALMOST_256 = 255.999


def is_bytes(pixels: torch.Tensor) -> bool:
    """Whether the values are 0 to 255; otherwise they are floats, 0 to 1."""
    return pixels.dtype == torch.uint8


def most(pixels: torch.Tensor) -> int:
    """The largest value."""
    return 255 if is_bytes(pixels) else 1


def each(values: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """A number for each picture, such that it can be multiplied with all of its pixels."""
    return values.to(torch.float32).to(pixels.device, non_blocking=True).view(-1, 1, 1, 1)


def settle(values: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """`values`, which may be written into, in the range and the type of `pixels`; rounded down."""
    values = values.clamp_(0, most(pixels))
    return values.to(torch.uint8) if is_bytes(pixels) else values


def as_floats(pixels: torch.Tensor) -> torch.Tensor:
    """0 to 1."""
    return pixels.to(torch.float32) * (1.0 / 255) if is_bytes(pixels) else pixels


def as_bytes(values: torch.Tensor) -> torch.Tensor:
    """Floats of 0 to 1 as 0 to 255."""
    return (values * _ALMOST_256).to(torch.uint8)
