"""The changes of `auto_augment` on a GPU: a kernel for all pictures, whichever change each has.

The arithmetic is that of `color` and `space`, operation by operation, so results are those of the
processor.
"""

import numpy as np
import numpy.typing as npt
import torch
import triton

from slipstream.augment import auto_kernel
from slipstream.augment.auto_augment import MOVES, NAMES, matrices
from slipstream.augment.batch_steps import Parameters
from slipstream.augment.flat import is_planar, on_device, reciprocal_of
from slipstream.augment.space import fixed_point

BLOCK, WARPS = 1024, 4
TABLE_BLOCK, TABLE_WARPS = 4096, 8
_TABLES = np.array([k > 5 and name not in ("Color", "Sharpness") for k, name in enumerate(NAMES)])
# The amount of a change is its strength times this, and this more.
_TIMES = np.array([255.0 if name == "Solarize" else 1.0 for name in NAMES])
_MORE = np.array([
    1.0 if name in ("Brightness", "Color", "Contrast", "Sharpness") else 0.0 for name in NAMES
])  # fmt: skip


def run_changes(pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
    """As `AutoAugment.apply`, for bytes [N, 3, H, W] in any strides."""
    count, _, height, width = pixels.shape
    turns = drawn["which"].shape[1]
    if turns == 0 or pixels.numel() == 0:
        return pixels.clone(memory_format=torch.contiguous_format)
    plans = torch.zeros(
        (turns, count, auto_kernel.WORDS.value), dtype=torch.int64, pin_memory=pixels.is_cuda
    )
    write_plans(drawn, height, width, plans.numpy())
    plans = on_device(plans, pixels.device)
    looks_up = _TABLES[drawn["which"].numpy()].any(axis=0)
    tables = torch.empty((count, 3, 256), dtype=torch.uint8, device=pixels.device)
    results = [
        torch.empty_like(pixels, memory_format=torch.contiguous_format)
        for _ in range(min(turns, 2))
    ]
    for turn in range(turns):
        result = results[turn % 2]
        if looks_up[turn]:
            make_tables(pixels, tables, plans[turn])
        change(pixels, result, tables, plans[turn])
        pixels = result
    return pixels


def write_plans(drawn: Parameters, height: int, width: int, words: npt.NDArray[np.int64]) -> None:
    """What the kernels have to know, into zeros [turns, N, 8]: see `auto_kernel`."""
    which, strength = drawn["which"].numpy().T, drawn["strength"].numpy().T
    words[..., 0] = which
    words.view(np.float32)[..., 2] = strength * _TIMES[which] + _MORE[which]
    for name in MOVES:
        chosen = which == NAMES.index(name)
        places = fixed_point(matrices(name, strength[chosen], height, width))
        words[chosen, 2:] = places.numpy()


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
