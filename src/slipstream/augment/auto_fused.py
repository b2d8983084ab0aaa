"""The changes of `auto_augment` on a GPU: a kernel for all pictures, whichever change each has.

The arithmetic is that of `color` and `space`, operation by operation, so results are those of the
processor.
"""

import functools

import numpy as np
import numpy.typing as npt
import torch
import triton

from slipstream.augment import auto_kernel
from slipstream.augment.auto_augment import MOVES, NAMES, Strengths, matrices
from slipstream.augment.batch_steps import Parameters
from slipstream.augment.flat import is_planar, on_device, reciprocal_of
from slipstream.augment.space import fixed_point

BLOCK, WARPS = 512, 4
TABLE_BLOCK, TABLE_WARPS = 4096, 8
_LOOKS_UP = np.array([name not in (*MOVES, "Identity", "Color", "Sharpness") for name in NAMES])


def run_changes(
    pixels: torch.Tensor, drawn: Parameters, strengths: Strengths, bins: int
) -> torch.Tensor:
    """As `AutoAugment.apply`, for bytes [N, 3, H, W] in any strides."""
    count, _, height, width = pixels.shape
    choice = drawn["choice"].numpy().T
    if choice.size == 0 or pixels.numel() == 0:
        return pixels.clone(memory_format=torch.contiguous_format)
    shape = (*choice.shape, auto_kernel.WORDS.value)
    plans = torch.empty(shape, dtype=torch.int64, pin_memory=pixels.is_cuda)
    # Clipped: the other ways to take go through a copy.
    plans_for(strengths, bins, height, width).take(choice, 0, plans.numpy(), mode="clip")
    looks_up = _LOOKS_UP[drawn["which"].numpy()].any(axis=0)
    plans = on_device(plans, pixels.device)
    tables = torch.empty((count, 3, 256), dtype=torch.uint8, device=pixels.device)
    results = [torch.empty_like(pixels, memory_format=torch.contiguous_format) for _ in choice[:2]]
    for turn, plan in enumerate(plans):
        result = results[turn % 2]
        if looks_up[turn]:
            make_tables(pixels, tables, plan)
        change(pixels, result, tables, plan)
        pixels = result
    return pixels


@functools.lru_cache(maxsize=64)
def plans_for(strengths: Strengths, bins: int, height: int, width: int) -> npt.NDArray[np.int64]:
    """The plan of every choice, int64[choices, 8]: see `auto_kernel`."""
    table = strengths.table(bins, height, width).reshape(len(NAMES), -1)
    plans = np.zeros((*table.shape, auto_kernel.WORDS.value), np.int64)
    for code, (name, strength) in enumerate(zip(NAMES, table, strict=True)):
        plans[code, :, 0] = code
        plans.view(np.float32)[code, :, 2] = _amount(name, strength)
        if name in MOVES:
            plans[code, :, 2:] = fixed_point(matrices(name, strength, height, width)).numpy()
    return plans.reshape(-1, plans.shape[2])


def _amount(name: str, strength: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if name in ("Brightness", "Color", "Contrast", "Sharpness"):
        return 1.0 + strength
    return strength * 255 if name == "Solarize" else strength


def make_tables(pixels: torch.Tensor, tables: torch.Tensor, plans: torch.Tensor) -> None:
    """Write the tables of the pictures that are changed by one."""
    count, _, height, width = pixels.shape
    reciprocal, quick = reciprocal_of(width, height)
    auto_kernel.make_tables[(3 * count,)](
        pixels, tables, plans, width, height, reciprocal, *pixels.stride(),
        PLANAR=is_planar(pixels), QUICK=quick, BLOCK=TABLE_BLOCK, num_warps=TABLE_WARPS,
        enable_fp_fusion=False,
    )  # fmt: skip


def change(
    pixels: torch.Tensor, out: torch.Tensor, tables: torch.Tensor, plans: torch.Tensor
) -> None:
    """Write each picture, changed, into `out`, `is_planar`."""
    count, _, height, width = pixels.shape
    reciprocal, quick = reciprocal_of(width, height)
    auto_kernel.change[(count * triton.cdiv(height * width, BLOCK),)](
        pixels, out, tables, plans, width, height, reciprocal, *pixels.stride(),
        PLANAR=is_planar(pixels), QUICK=quick, BLOCK=BLOCK, num_warps=WARPS,
        enable_fp_fusion=False,
    )  # fmt: skip
