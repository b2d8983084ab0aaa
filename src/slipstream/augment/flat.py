"""Flips, and what each byte becomes, in one kernel: for chains that change no colour."""

from dataclasses import dataclass

import torch
import triton

from slipstream.augment import flat_kernel
from slipstream.augment.affine import exact_affine
from slipstream.augment.finish import Finish, byte_values

BLOCK, ROUNDS, WARPS = 1024, 1, 4
_WIDEST = 16  # bytes that a thread stores at once
_WHOLE_BATCH = 1 << 30  # values that an int32 counts, with room for a last chunk


@dataclass(frozen=True)
class Values:
    """How a kernel makes values of bytes: the first of the ways that is exact."""

    how: int
    table: torch.Tensor
    constants: tuple[float, ...]  # three scales, three shifts


def values_for(finish: Finish | None, dtype: torch.dtype, device: torch.device) -> Values:
    """What `finish` does to bytes, rounded to `dtype`; without one they stay."""
    table = byte_values(finish, dtype, device)
    if finish is None or finish.kind != "float":
        return Values(flat_kernel.KEEP.value, table, (0.0,) * 6)
    pairs = exact_affine(finish, dtype)
    if pairs is None:
        return Values(flat_kernel.LOOK_UP.value, table, (0.0,) * 6)
    return Values(
        flat_kernel.AFFINE.value, table, (*(scale for scale, _ in pairs), *(s for _, s in pairs))
    )


def reciprocal_of(width: int, height: int) -> tuple[int, bool]:
    """For `flat_kernel.row_of`: the number to multiply by, and whether it serves this size."""
    serves = width > 1 and width * width * height < 1 << 32
    return -(-(1 << 32) // width) if serves else 0, serves


def on_device(numbers: torch.Tensor, device: torch.device) -> torch.Tensor:
    """On the device, in a copy that nobody waits for."""
    if device.type == "cuda" and not numbers.is_pinned():
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=True)


def is_interleaved(pixels: torch.Tensor) -> bool:
    """Whether values lie without gaps, the channels of a pixel together."""
    _, channels, height, width = pixels.shape
    return pixels.stride() == (height * width * channels, 1, width * channels, channels)


def is_planar(pixels: torch.Tensor) -> bool:
    """Whether values lie without gaps, each channel of a picture by itself."""
    _, channels, height, width = pixels.shape
    return pixels.stride() == (height * width * channels, height * width, width, 1)


def finish_bytes(
    pixels: torch.Tensor, out: torch.Tensor, flips: torch.Tensor | None, values: Values
) -> None:
    """Write what becomes of uint8[N, 3, H, W] into `out`, `is_interleaved` or `is_planar`.

    `flips` are uint8[N] on the device, None where no picture is flipped.
    """
    count, _, height, width = pixels.shape
    interleaved = is_interleaved(out)
    same = is_interleaved(pixels) if interleaved else is_planar(pixels)
    units, length = (count, 3 * height * width) if interleaved else (3 * count, height * width)
    if same and interleaved and flips is None and count * length < _WHOLE_BATCH:
        units, length = 1, count * length
    reciprocal, quick = reciprocal_of(width, height)
    run = _WIDEST // out.element_size()
    flat_kernel.finish[(units * triton.cdiv(length, 3 * ROUNDS * BLOCK),)](
        pixels, out, values.table, out if flips is None else flips, length, width, height,
        reciprocal, *pixels.stride(), *values.constants, INTERLEAVED=interleaved, SAME=same,
        FLIPS=flips is not None, ROWS=pixels.stride(2) != width * pixels.stride(3),
        FIT=(3 * width if interleaved else width) % run == 0, QUICK=quick, HOW=values.how,
        BLOCK=BLOCK, RUN=run, ROUNDS=ROUNDS, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
