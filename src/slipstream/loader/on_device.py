"""The end of a pipeline on the GPU: bytes travel, floats are made where they are used."""

import functools
from typing import Any

import torch

from slipstream.augment.finish import Finish


class UnfinishedPixels:
    """Page-locked uint8[N, H, W, 3] that becomes what a pipeline ends in when it moves to a device.

    The prefetcher moves it on its copy stream like any object that can move itself.
    """

    __slots__ = ("finish", "pixels")

    def __init__(self, pixels: torch.Tensor, finish: Finish) -> None:
        self.pixels = pixels
        self.finish = finish

    def pin_memory(self) -> "UnfinishedPixels":
        """Itself: the engine has written into page-locked memory."""
        return self

    def to(self, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        """The finished tensor there: the same arithmetic as on the CPU, so the same values."""
        pixels = self.pixels.to(device, non_blocking=non_blocking)
        if self.finish.kind == "array":
            return pixels
        planes = pixels.permute(0, 3, 1, 2)
        if self.finish.kind == "uint8":
            return planes.contiguous()
        values = planes.to(torch.float32, memory_format=torch.contiguous_format)
        # Constants as tensors: divided by a number, CUDA multiplies by its reciprocal instead.
        byte, normalize = _constants(self.finish, device)
        if self.finish.scale == "divide":
            values = values.div_(byte)
        elif self.finish.scale == "multiply":
            values = values.mul_(1.0 / 255)
        for mean, std in normalize:
            values = values.sub_(mean).div_(std)
        return values


@functools.lru_cache(maxsize=64)
def _constants(finish: Finish, device: torch.device) -> tuple[torch.Tensor, Any]:
    def on_device(values: tuple[float, ...]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1)

    made = on_device((255.0,)), [(on_device(m), on_device(s)) for m, s in finish.normalize]
    if device.type == "cuda":
        # Made on whichever stream came first, used on others.
        torch.cuda.current_stream(device).synchronize()
    return made
