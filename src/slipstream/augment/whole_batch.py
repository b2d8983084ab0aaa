"""Ops on a batch of tensors, outside of the loader: each picture with random numbers of its own."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import pad

from slipstream.augment.batch import DrawnBatch, draw_batch
from slipstream.augment.batch_ops import CutMix, Mixup
from slipstream.augment.batch_steps import Mirror
from slipstream.augment.chain import Link
from slipstream.augment.finish import Finish
from slipstream.augment.geometry import Windows
from slipstream.augment.lowering import Lowered, lower
from slipstream.augment.ops import Op, RandomResizedCrop, Resize, ToTensor
from slipstream.augment.steps import Random
from slipstream.errors import UsageError

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def apply_to_batch(ops: Sequence[Op], pixels: torch.Tensor) -> torch.Tensor:
    """All of them on [N, 3, H, W], bytes or floats between 0 and 1, in any strides, where they are.

    Without ToTensor the result has the type of `pixels`. Raises `UsageError` for what takes more
    than the pixels of such a batch.
    """
    _check(ops, pixels)
    given = pixels
    is_last = pixels.is_contiguous(memory_format=torch.channels_last)
    if pixels.dtype != torch.uint8:
        ops = _floats_first(ops, pixels.dtype, is_last=is_last)
        pixels = pixels.to(torch.float32)
    lowered = _lowered(tuple(ops))
    if lowered.rest:
        name = type(lowered.rest[0]).__name__
        raise UsageError(
            f"{name} {lowered.why}. On a batch of tensors crops come before steps on whole batches,"
            " and Normalize behind ToTensor."
        )
    result = lowered.result
    if result.kind != "float":
        result = replace(result, kind="uint8", channels_last=is_last)
    made = _drawn(lowered, result, pixels)
    # Never the caller's own memory: whether anything is drawn is chance.
    return made.clone() if made.data_ptr() == given.data_ptr() else made


def _floats_first(ops: Sequence[Op], dtype: torch.dtype, *, is_last: bool) -> tuple[Op, ...]:
    """The ops for pixels that are floats already: their first ToTensor stands in front of them all
    and says only what comes out; without one pixels stay as they are.
    """
    memory_format = torch.channels_last if is_last else torch.contiguous_format
    place = next((k for k, op in enumerate(ops) if isinstance(op, ToTensor)), None)
    if place is None:
        return (ToTensor(dtype, memory_format), *ops)
    return (ops[place], *ops[:place], *ops[place + 1 :])


def _lowered(ops: tuple[Op, ...]) -> Lowered:
    """Worked out once for a pipeline: that takes as long as a GPU takes for a batch."""
    try:
        return _lowered_once(ops, torch.get_default_dtype())
    except TypeError:  # a list in one of them has no hash
        return lower(list(ops), exact=True)


@functools.lru_cache(maxsize=64)
def _lowered_once(ops: tuple[Op, ...], default_dtype: torch.dtype) -> Lowered:
    return lower(list(ops), exact=True)


def torch_random(count: int) -> Random:
    """The words of `count` pictures, of torch's global generator on the processor."""

    def draw(op: int, blocks: int) -> npt.NDArray[np.uint32]:
        pairs = torch.empty((count, 2 * blocks), dtype=torch.int64, device="cpu").random_(
            -(1 << 63), None
        )
        return pairs.numpy().view(np.uint32)

    return draw


def _check(ops: Sequence[Op], pixels: torch.Tensor) -> None:
    for op in ops:
        if isinstance(op, (RandomResizedCrop, Resize)):
            raise UsageError(
                f"{type(op).__name__} resizes pictures as they are decoded, and these are tensors."
                " Give it to the loader: transform=…"
            )
        if isinstance(op, (Mixup, CutMix)):
            raise UsageError(
                f"{type(op).__name__} mixes labels as well, and this is a batch of pictures alone."
                " Give it to the loader: transform=…"
            )
    if pixels.ndim != 4 or pixels.shape[1] != 3 or pixels.dtype not in (torch.uint8, *_FLOATS):
        raise UsageError(
            f"Augment takes batches [N, 3, height, width] of uint8 or floats, got {pixels.dtype}"
            f"{list(pixels.shape)}."
        )


def _drawn(lowered: Lowered, result: Finish, pixels: torch.Tensor) -> torch.Tensor:
    count, _, height, width = pixels.shape
    random = torch_random(count)
    windows = lowered.geometry.draw(np.full(count, width), np.full(count, height), random)
    if windows.refused:
        raise ValueError(windows.refused[0])
    if lowered.geometry.size is not None:
        pixels = _cropped(pixels, windows, lowered.geometry.size)
    links: list[Link] = [(lowered.finish, {})]
    if windows.flips.any():
        links.insert(0, (Mirror(), {"flips": torch.from_numpy(windows.flips)}))
    if lowered.stages:
        links += draw_batch(lowered.stages, random, *pixels.shape[2:]).links
    return DrawnBatch(tuple(links), result).run(pixels)


def _cropped(pixels: torch.Tensor, windows: Windows, size: tuple[int, int]) -> torch.Tensor:
    """Each picture's own window, black outside; a view where all have the same, inside."""
    count, channels, height, width = pixels.shape
    across, down = size
    if count == 0:
        return pixels.new_empty((0, channels, down, across))
    left, top = (windows.boxes[:, axis].astype(np.int64) for axis in (0, 1))
    before_x, before_y = max(0, -int(left.min())), max(0, -int(top.min()))
    behind_x = max(0, int(left.max()) + across - width)
    behind_y = max(0, int(top.max()) + down - height)
    if before_x or before_y or behind_x or behind_y:
        pixels = pad(pixels, (before_x, behind_x, before_y, behind_y))
    left, top = left + before_x, top + before_y
    if (left == left[0]).all() and (top == top[0]).all():
        return pixels[:, :, top[0] : top[0] + down, left[0] : left[0] + across]
    rows, columns = top[:, None] + np.arange(down), left[:, None] + np.arange(across)
    picture, row, column = (
        torch.from_numpy(numbers).to(pixels.device, non_blocking=True)
        for numbers in (np.arange(count), rows, columns)
    )
    chosen = pixels.permute(0, 2, 3, 1)[
        picture.view(-1, 1, 1), row.unsqueeze(2), column.unsqueeze(1)
    ]
    return chosen.permute(0, 3, 1, 2)
