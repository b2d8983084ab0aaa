"""Byte to value by one fused multiply-add, where that is what the table says."""

import functools

import numpy as np
import numpy.typing as npt
import torch

from slipstream.augment.finish import Finish

_NEIGHBOURS = 8
_BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
Doubles = npt.NDArray[np.float64]


@functools.lru_cache(maxsize=64)
def exact_affine(finish: Finish, dtype: torch.dtype) -> tuple[tuple[float, float], ...] | None:
    """(scale, shift) of each channel, float32 numbers such that byte * scale + shift, rounded to
    float32 once and then to `dtype`, is bit for bit what `finish.table()` rounded to `dtype` holds,
    for all bytes. None if there are no such numbers near the obvious ones.

    >>> exact_affine(Finish("float", "multiply"), torch.float32)[0]
    (0.003921568859368563, 0.0)
    >>> exact_affine(Finish("float", "divide"), torch.float32) is None
    True
    """
    table = finish.table()
    if table is None:
        return None
    wanted = table.to(dtype).view(_BITS[dtype]).numpy()
    scales, shifts = _obvious(finish)
    found = []
    for channel in range(3):
        pair = _search(scales[channel], shifts[channel], wanted[channel], dtype)
        if pair is None:
            return None
        found.append(pair)
    return tuple(found)


def _obvious(finish: Finish) -> tuple[Doubles, Doubles]:
    scale = np.full(3, 1.0 if finish.scale == "none" else 1.0 / 255)
    shift = np.zeros(3)
    for mean, std in finish.normalize:
        mean_, std_ = (np.array(values, np.float32).astype(np.float64) for values in (mean, std))
        scale, shift = scale / std_, (shift - mean_) / std_
    return scale, shift


def _search(
    scale: float, shift: float, wanted: npt.NDArray[np.int_], dtype: torch.dtype
) -> tuple[float, float] | None:
    """The pair nearest to the obvious one that gives what is wanted of one channel."""
    pairs = [(s, t) for s in _around(scale) for t in _around(shift)]
    scales, shifts = (np.array(values)[:, None] for values in zip(*pairs, strict=True))
    values = torch.from_numpy(fused_multiply_add(np.arange(256.0), scales, shifts))
    got = values.to(dtype).view(_BITS[dtype]).numpy()
    fits = np.flatnonzero((got == wanted).all(axis=1))
    return pairs[int(fits[0])] if len(fits) else None


def _around(value: float) -> list[float]:
    """float32 numbers, the nearest first; 0 stays what it is."""
    middle = np.float32(value)
    if middle == 0:
        return [0.0]
    near, up, down = [float(middle)], middle, middle
    for _ in range(_NEIGHBOURS):
        up, down = np.nextafter(up, np.float32(np.inf)), np.nextafter(down, np.float32(-np.inf))
        near += [float(up), float(down)]
    return near


def fused_multiply_add(a: Doubles, b: Doubles, c: Doubles) -> npt.NDArray[np.float32]:
    """a * b + c of float32 numbers held in float64, rounded to float32 once, as GPUs do it."""
    product = a * b  # exact
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    # Rounded to odd: a second rounding, to fewer bits, then is right.
    is_even = total.view(np.int64) % 2 == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & is_even, odd, total).astype(np.float32)
