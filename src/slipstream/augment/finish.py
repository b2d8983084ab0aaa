"""What a pipeline does with the pixels after the geometry: make a tensor, scale, normalize."""

import functools
import sys
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch

Kind = Literal["array", "uint8", "float"]
Scale = Literal["none", "divide", "multiply"]
Channels = tuple[float, ...]


@dataclass(frozen=True)
class Finish:
    """How uint8[H, W, 3] pixels become what the training loop gets. Picklable.

    `kind`: "array" leaves them as they are, "uint8" gives uint8[3, H, W], "float" floats[3, H, W].
    `scale`: how bytes become floats. ToTensor divides by 255; v2.ToDtype(float32, scale=True)
    multiplies by 1/255, and the last bit of some values differs. `normalize`: (mean, std) of each
    Normalize, in order, 1 or 3 values each. `planar`: each channel's values lie together in the
    memory of one sample, as ToTensor leaves them; otherwise each pixel's. `image`: torchvision
    hands on a `tv_tensors.Image`; `wrap` makes one. `dtype` and `channels_last` are those of the
    floats in the end: all is computed in float32 and rounded once.

    >>> Finish("float", "divide", (((0.5,), (0.25,)),)).table()[:, 255]
    tensor([2., 2., 2.])
    """

    is_pointwise: ClassVar[bool] = True
    allows_flips: ClassVar[bool] = True
    kind: Kind = "array"
    scale: Scale = "none"
    normalize: tuple[tuple[Channels, Channels], ...] = ()
    planar: bool = False
    image: bool = False
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    @property
    def memory_format(self) -> torch.memory_format:
        """That of a batch in the end."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def table(self) -> torch.Tensor | None:
        """The value of each byte in each channel, float32[3, 256], or None unless `kind` is
        "float".

        Made by the very operations torchvision runs on a picture, in their order: looking bytes
        up here gives the same bits.
        """
        if self.kind != "float":
            return None
        every_byte = torch.arange(256, dtype=torch.uint8, device="cpu").expand(3, 1, 256)
        return self._values(every_byte).reshape(3, 256).contiguous()

    def apply(self, pixels: npt.NDArray[np.uint8]) -> "npt.NDArray[np.uint8] | torch.Tensor":
        """The result for one picture, uint8[H, W, 3], operation by operation as torchvision runs
        them. Never shares memory with `pixels` unless `kind` is "array", which returns them.
        """
        if self.kind == "array":
            return pixels
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
        if self.planar:
            tensor = tensor.contiguous()
        if self.kind == "uint8":
            return tensor
        values = self._values(tensor).to(self.dtype)
        return (
            values.permute(1, 2, 0).contiguous().permute(2, 0, 1) if self.channels_last else values
        )

    def apply_to_batch(
        self,
        pixels: torch.Tensor,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        """What it makes of [N, 3, H, W] on any device: the same values, in float32 where they are
        floats. Pixels that are floats are scaled already and are normalized only.
        """
        if self.kind != "float":
            return pixels
        values = pixels.to(torch.float32, memory_format=memory_format)
        byte, normalize = _constants(self, pixels.device)
        if values is pixels:
            values = values.clone() if normalize else values
        elif self.scale == "divide":
            values.div_(byte)
        elif self.scale == "multiply":
            values.mul_(1.0 / 255)
        for mean, std in normalize:
            values.sub_(mean).div_(std)
        return values

    def wrap(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` as torchvision's Image where the pipeline at hand would have made it one.

        Transforms that run as given after the engine tell pictures by this type.
        """
        tv_tensors = sys.modules.get("torchvision.tv_tensors")
        if not self.image or tv_tensors is None:
            return tensor
        wrapped: torch.Tensor = tv_tensors.Image(tensor)
        return wrapped

    def _values(self, tensor: torch.Tensor) -> torch.Tensor:
        values = tensor.to(torch.float32)
        if self.scale == "divide":
            values = values.div(255)
        elif self.scale == "multiply":
            values = values.mul_(1.0 / 255)
        for mean, std in self.normalize:
            values = values.sub(_by_channel(mean)).div_(_by_channel(std))
        return values


@functools.lru_cache(maxsize=64)
def byte_values(finish: Finish | None, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What each byte becomes in each channel, [3, 256] on a device; without floats it stays."""
    with torch.inference_mode(False):
        table = None if finish is None else finish.table()
        if table is None:
            table = torch.arange(256, dtype=torch.uint8, device="cpu").expand(3, 256)
        values = table.to(dtype).contiguous().to(device)
    if device.type == "cuda":
        # Made on whichever stream came first, used on others.
        torch.cuda.current_stream(device).synchronize()
    return values


def _by_channel(values: Channels, device: torch.device | None = None) -> torch.Tensor:
    where = device or torch.device("cpu")
    return torch.tensor(values, dtype=torch.float32, device=where).view(-1, 1, 1)


@functools.lru_cache(maxsize=64)
def _constants(
    finish: Finish, device: torch.device
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The divisor and each (mean, std), as tensors: divided by a number, CUDA multiplies by its
    reciprocal instead.
    """
    # Kept for all: those of inference mode could not be used outside of it.
    with torch.inference_mode(False):
        made = (
            _by_channel((255.0,), device),
            [
                (_by_channel(mean, device), _by_channel(std, device))
                for mean, std in finish.normalize
            ],
        )
    if device.type == "cuda":
        # Made on whichever stream came first, used on others.
        torch.cuda.current_stream(device).synchronize()
    return made
