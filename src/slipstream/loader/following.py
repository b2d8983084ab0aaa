"""Masks, boxes and points of a batch, moved as its pictures were."""

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from slipstream import _native
from slipstream.augment.followers import Followers, cut_mask, move_boxes, move_points
from slipstream.augment.geometry import Windows
from slipstream.errors import UsageError
from slipstream.loader.bad_samples import Refusal
from slipstream.loader.memory import Memory
from slipstream.loader.readers import Column, Errors, Pictures

Mask = npt.NDArray[Any]
# Of Pillow's: one number a pixel. A palette's are the numbers of its colours.
_MASK_MODES = {"1": np.uint8, "L": np.uint8, "P": np.uint8, "I;16": np.int64, "I": np.int64}


class Moved(NamedTuple):
    """The pictures that are followed: where they lie, what is taken of them, and its size."""

    rows: Pictures
    windows: Windows
    size: tuple[int, int]


def follow(
    followers: Followers,
    moved: Moved,
    pictures: Mapping[str, tuple[Pictures, Errors]],
    columns: dict[str, Column],
    errors: Errors,
    *,
    memory: Memory,
    threads: int,
) -> None:
    """Replace the columns of these fields by what has become of them. `pictures` are the masks
    that are pictures. What goes wrong with a sample is added to `errors`; raises `UsageError` for a
    field that cannot follow.
    """
    for name in followers.masks:
        if name in pictures:
            rows, trouble = pictures[name]
            for place, reason in trouble.items():
                errors.setdefault(place, reason)
            masks = _decode_masks(name, rows, errors, threads)
        else:
            masks = [_as_mask(name, value) for value in _column(name, columns)]
        columns[name] = _cut_masks(name, masks, moved, errors, memory)
    for name in followers.boxes:
        columns[name] = _move(name, _column(name, columns), 4, moved, errors, memory)
    for name in followers.keypoints:
        columns[name] = _move(name, _column(name, columns), 2, moved, errors, memory)


def _column(name: str, columns: Mapping[str, Column]) -> Column:
    if name not in columns:
        raise UsageError(
            f'"{name}" is to follow the picture, and samples hold {", ".join(columns)}.'
        )
    return columns[name]


def _cut_masks(
    name: str, masks: list[Mask | None], moved: Moved, errors: Errors, memory: Memory
) -> torch.Tensor:
    width, height = moved.size
    small = all(mask is None or mask.dtype == np.uint8 for mask in masks)
    out = memory.empty((len(masks), height, width), torch.uint8 if small else torch.int64)
    target = out.numpy()
    target[...] = 0
    assert moved.rows.widths is not None and moved.rows.heights is not None
    sizes = zip(moved.rows.heights.tolist(), moved.rows.widths.tolist(), strict=True)
    for k, (mask, size) in enumerate(zip(masks, sizes, strict=True)):
        if mask is None or k in errors or k in moved.windows.refused:
            continue
        if mask.shape != size:
            errors[k] = (
                f'field "{name}" is {mask.shape[1]} x {mask.shape[0]}, its picture'
                f" {size[1]} x {size[0]}"
            )
            continue
        target[k] = cut_mask(moved.windows.row(k), mask)
    return out


def _as_mask(name: str, value: Any) -> Mask | None:
    if value is None:
        return None
    is_whole = isinstance(value, torch.Tensor) and not value.is_floating_point()
    if not is_whole or value.ndim != 2:
        kind = (
            f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else "no array"
        )
        raise UsageError(f'The mask "{name}" is {kind}, expected whole numbers [H, W].')
    array: Mask = value.numpy()
    return array.astype(np.uint8 if array.dtype in (np.uint8, np.bool_) else np.int64, copy=False)


def _decode_masks(name: str, rows: Pictures, errors: Errors, threads: int) -> list[Mask | None]:
    assert rows.codings is not None
    if rows.codings.any():
        raise UsageError(f'The mask "{name}" is a JPEG, whose values are not exact. Pack PNGs.')

    def decode(k: int) -> Mask | str | None:
        return None if k in errors else _decode_mask(name, rows, k)

    with ThreadPoolExecutor(threads) as pool:
        decoded = list(pool.map(decode, range(len(rows.map_ids))))
    for k, found in enumerate(decoded):
        if isinstance(found, str):
            errors.setdefault(k, found)
    return [None if isinstance(found, str) else found for found in decoded]


def _decode_mask(name: str, rows: Pictures, k: int) -> Mask | str:
    """The mask, or what is wrong with it."""
    start = int(rows.offsets[k])
    data = memoryview(rows.maps[rows.map_ids[k]])[start : start + int(rows.lengths[k])]
    if rows.checksums is not None and _native.crc32c(data) != int(rows.checksums[k]):
        return f'field "{name}": {_native.status_text(_native.STATUS_CHECKSUM)}'
    try:
        with Image.open(io.BytesIO(data)) as opened:
            mode = opened.mode
            pixels = np.asarray(opened)
    except MemoryError:
        raise
    except Exception as error:  # Pillow's plugins raise whatever broken bytes lead them to
        return f'field "{name}": picture cannot be decoded: {error}'
    dtype = _MASK_MODES.get(mode)
    if dtype is None:
        return f'field "{name}" is no mask: a pixel has more than one number (Pillow mode {mode})'
    return pixels.astype(dtype, copy=False)


def _move(
    name: str, column: Column, numbers: int, moved: Moved, errors: Errors, memory: Memory
) -> Column:
    """Boxes (4 numbers) or points (2) of all samples at once."""
    values = [_as_rows(name, value, numbers, k, errors) for k, value in enumerate(column)]
    counts = [len(rows) for rows in values]
    samples = np.repeat(np.arange(len(values)), counts)
    together = np.concatenate([np.empty((0, numbers)), *values])
    move = move_boxes if numbers == 4 else move_points
    result = memory.empty(together.shape, torch.float32)
    result.copy_(torch.from_numpy(move(moved.windows, samples, together)))
    if isinstance(column, torch.Tensor):
        return result.view(len(values), len(result) // max(1, len(values)), numbers)
    return [result[end - count : end] for count, end in zip(counts, np.cumsum(counts), strict=True)]


def _as_rows(
    name: str, value: Any, numbers: int, place: int, errors: Errors
) -> npt.NDArray[np.float64]:
    if value is None:  # could not be read, which is in `errors`
        return np.empty((0, numbers))
    if not isinstance(value, torch.Tensor) or value.ndim != 2 or value.shape[1] != numbers:
        kind = (
            f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else "no array"
        )
        errors.setdefault(place, Refusal(f'field "{name}" is {kind}, expected [K, {numbers}]'))
        return np.empty((0, numbers))
    return value.numpy().astype(np.float64)
