"""Ops outside of the engine, behind a transform that only Python knows: on one picture, or handed
on with a whole batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from slipstream.augment.finish import Finish
from slipstream.augment.lowering import Lowered, lower
from slipstream.augment.ops import Normalize, Op, RandomHorizontalFlip, RandomVerticalFlip
from slipstream.augment.pillow import apply
from slipstream.augment.whole_batch import apply_to_batch, torch_random
from slipstream.errors import UsageError

_BATCH_AXES = 4
_CHANNELS = 3
_draw = torch_random(1)


def apply_one(op: Op, picture: Any) -> Any:
    """`op` on a Pillow picture, or on a tensor where it can be; random numbers are torch's."""
    if isinstance(picture, torch.Tensor):
        is_batch = picture.ndim == _BATCH_AXES
        return apply_to_batch([op], picture) if is_batch else _on_tensor(op, picture)
    lowered = lower(op, exact=True)
    if lowered.rest:
        raise UsageError(f"{op}: {lowered.why}.")
    return _on_picture(lowered, op, picture)


def apply_ops(ops: Sequence[Op], picture: Any) -> Any:
    """All of them, rounded as in a batch: once, in the end."""
    if isinstance(picture, torch.Tensor):
        if picture.ndim == _BATCH_AXES:
            return apply_to_batch(ops, picture)
        for op in ops:
            picture = _on_tensor(op, picture)
        return picture
    return _on_picture(lower(list(ops), exact=True), "Augment", picture)


def _on_picture(lowered: Lowered, what: object, picture: Any) -> Any:
    if isinstance(picture, np.ndarray):
        picture = _from_array(what, picture)
    if not isinstance(picture, Image.Image):
        raise UsageError(
            f"{what} wants a Pillow picture or a tensor, got {type(picture).__name__}."
        )
    _refuse_mixing(lowered)
    picture = picture.convert("RGB")
    windows = lowered.geometry.draw([picture.width], [picture.height], _draw)
    if windows.refused:
        raise ValueError(windows.refused[0])
    picture = apply(windows.row(0), picture)
    if lowered.finish.kind == "array" and not lowered.stages and not lowered.rest:
        return picture
    result = lowered.complete(np.array(picture), _draw)
    return Image.fromarray(result) if isinstance(result, np.ndarray) else result


def _from_array(what: object, pixels: npt.NDArray[Any]) -> Image.Image:
    is_picture = pixels.ndim == _BATCH_AXES - 1 and pixels.shape[2] == _CHANNELS
    if pixels.dtype == np.uint8 and (is_picture or pixels.ndim == _BATCH_AXES - 2):
        return Image.fromarray(pixels)
    raise UsageError(
        f"{what} wants arrays uint8[height, width, 3], got {pixels.dtype}{list(pixels.shape)}."
        " Batches are tensors [N, 3, height, width]: torch.from_numpy(…)."
    )


def _on_tensor(op: Op, picture: torch.Tensor) -> torch.Tensor:
    _refuse_mixing(lower(op, exact=True))
    if picture.ndim == _BATCH_AXES - 1 and picture.shape[0] == _CHANNELS:
        return apply_to_batch([op], picture.unsqueeze(0))[0]
    if isinstance(op, Normalize) and picture.is_floating_point():
        mean, std = (
            torch.tensor(values, dtype=picture.dtype, device=picture.device).view(-1, 1, 1)
            for values in (op.mean, op.std)
        )
        return (picture - mean) / std
    if isinstance(op, (RandomHorizontalFlip, RandomVerticalFlip)):
        axis = -1 if isinstance(op, RandomHorizontalFlip) else -2
        return picture.flip(axis) if float(torch.rand(())) < op.p else picture
    lowered = lower(op, exact=True)
    if not lowered.stages:
        raise UsageError(f"{op} wants a Pillow picture, got a tensor. Put it before ToTensor.")
    values = picture if picture.dtype == torch.uint8 else picture.to(torch.float32)
    step = lowered.stages[0]
    assert not isinstance(step, Finish)
    drawn = step.draw(_draw, picture.shape[-2], picture.shape[-1])
    return step.apply(values.unsqueeze(0), drawn)[0].to(picture.dtype)


def _refuse_mixing(lowered: Lowered) -> None:
    if lowered.mixes:
        raise UsageError(
            "Mixup and CutMix mix the pictures of a batch, and this is one. Give them to the"
            " loader: transform=…"
        )
