"""One op on one picture, outside of the engine: behind a transform that only Python knows."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from slipstream.augment.lowering import lower
from slipstream.augment.ops import Normalize, Op, RandomHorizontalFlip, RandomVerticalFlip
from slipstream.augment.pillow import apply
from slipstream.errors import UsageError


def apply_one(op: Op, picture: Any) -> Any:
    """`op` on a Pillow picture, or on a tensor where it can be; random numbers are torch's."""
    if isinstance(picture, torch.Tensor):
        return _on_tensor(op, picture)
    if isinstance(picture, np.ndarray):
        picture = Image.fromarray(picture)
    if not isinstance(picture, Image.Image):
        raise UsageError(f"{op} wants a Pillow picture or a tensor, got {type(picture).__name__}.")
    lowered = lower(op, exact=True)
    if lowered.rest:
        raise UsageError(f"{op}: {lowered.why}.")
    picture = picture.convert("RGB")
    windows = lowered.geometry.draw([picture.width], [picture.height], _draw)
    if windows.refused:
        raise ValueError(windows.refused[0])
    picture = apply(windows.row(0), picture)
    if lowered.finish.kind == "array":
        return picture
    return lowered.finish.apply(np.asarray(picture))


def _draw(op: int, blocks: int) -> npt.NDArray[np.uint32]:
    words = torch.randint(0, 1 << 32, (1, 4 * blocks), dtype=torch.int64)
    return words.numpy().astype(np.uint32)


def _on_tensor(op: Op, picture: torch.Tensor) -> torch.Tensor:
    if isinstance(op, Normalize):
        mean, std = (
            torch.tensor(values, dtype=picture.dtype).view(-1, 1, 1) for values in (op.mean, op.std)
        )
        return (picture - mean) / std
    if isinstance(op, (RandomHorizontalFlip, RandomVerticalFlip)):
        axis = -1 if isinstance(op, RandomHorizontalFlip) else -2
        return picture.flip(axis) if float(torch.rand(())) < op.p else picture
    raise UsageError(f"{op} wants a Pillow picture, got a tensor. Put it before ToTensor.")
