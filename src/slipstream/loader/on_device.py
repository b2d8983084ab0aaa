"""The end of a pipeline on the GPU: bytes travel, floats are made where they are used."""

import torch

from slipstream.augment.batch import DrawnBatch, planes_of
from slipstream.augment.chain import apply_chain
from slipstream.augment.finish import Finish


class UnfinishedPixels:
    """Page-locked uint8[N, H, W, 3] that becomes what a pipeline ends in when it moves to a device.

    The prefetcher moves it on its copy stream like any object that can move itself. `drawn` is what
    is to be done with the whole batch behind `finish`, if there is anything.
    """

    __slots__ = ("drawn", "finish", "pixels")

    def __init__(
        self, pixels: torch.Tensor, finish: Finish, drawn: DrawnBatch | None = None
    ) -> None:
        self.pixels = pixels
        self.finish = finish
        self.drawn = drawn

    @property
    def nbytes(self) -> int:
        """What travels."""
        return self.pixels.nbytes

    def pin_memory(self) -> "UnfinishedPixels":
        """Itself: the engine has written into page-locked memory."""
        return self

    def to(self, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        """The finished tensor there: the same arithmetic as on the CPU, so the same values."""
        pixels = self.pixels.to(device, non_blocking=non_blocking)
        if self.drawn is not None:
            planes = planes_of(pixels, "array")
            return self.drawn.run(self.finish.apply_to_batch(planes))
        if self.finish.kind == "array":
            return pixels
        planes = pixels.permute(0, 3, 1, 2)
        if self.finish.kind == "uint8":
            return planes.contiguous()
        return apply_chain(
            planes, [(self.finish, {})], dtype=self.finish.dtype,
            memory_format=self.finish.memory_format,
        )  # fmt: skip
