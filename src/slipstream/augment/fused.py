"""Chains of point-wise steps on a GPU, in one kernel: bytes in, what training takes out.

Every picture has a plan, a row of codes and amounts that its pixels go through without leaving the
registers. The arithmetic is that of `color`, operation by operation, so results are those of the
processor.
"""

import re
from collections.abc import Sequence

import numpy as np
import torch
import triton

from slipstream.augment import kernels
from slipstream.augment.batch_steps import (
    BatchStep,
    Erase,
    Grayscale,
    Jitter,
    Mirror,
    Parameters,
)
from slipstream.augment.finish import Finish
from slipstream.augment.flat import (
    finish_bytes,
    is_interleaved,
    is_planar,
    on_device,
    reciprocal_of,
    values_for,
)

Link = tuple[BatchStep | Finish, Parameters]

BLOCK, WARPS = 512, 4
_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE, _GREY, _ERASE = range(1, 7)  # 0: nothing
_JITTER = (_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE)
# A plan: a sum of two words, a box of four, flips, a word left over, codes, amounts.
_BOX, _FLIPS, _CODES = 2, 6, 8

_LARGEST = 1 << 31
_LETTERS = {Mirror: "M", Jitter: "J", Grayscale: "G", Erase: "E"}
_KNOWN = re.compile("M?(?!.*(J.*J|G.*G|E.*E))[JGE]*F?E?")


def can_fuse(pixels: torch.Tensor, chain: Sequence[Link]) -> bool:
    """Whether the kernels know this chain: bytes come in, flips come first, colours change before
    floats are made, contrast at most once.
    """
    is_known = pixels.dtype == torch.uint8 and _KNOWN.fullmatch(_spelled(chain)) is not None
    return is_known and _reach(pixels) < _LARGEST


def _reach(pixels: torch.Tensor) -> int:
    """How far apart the bytes of a picture lie: the kernels count that in 32 bits."""
    sizes = zip(pixels.shape[1:], pixels.stride()[1:], strict=True)
    return sum((size - 1) * step for size, step in sizes)


def _spelled(chain: Sequence[Link]) -> str:
    """A letter a stage: F makes floats, X is unknown, and those that do nothing have none."""
    letters = ""
    for stage, _ in chain:
        if not isinstance(stage, Finish):
            letters += _LETTERS.get(type(stage), "X")
        elif stage.kind == "float" and "F" not in letters:
            letters += "F"
        elif stage.kind == "float" and stage.normalize:
            letters += "X"
    return letters


def run_chain(
    pixels: torch.Tensor,
    chain: Sequence[Link],
    *,
    dtype: torch.dtype,
    memory_format: torch.memory_format,
) -> torch.Tensor:
    """As `chain.apply_chain`, for chains that `can_fuse`."""
    spelled, drawn = _spelled(chain), {type(stage): drawn for stage, drawn in chain}
    if not spelled and memory_format is torch.preserve_format:
        return pixels
    out = torch.empty_like(pixels, dtype=dtype, memory_format=memory_format)
    if out.numel() == 0:
        return out
    flips = drawn.get(Mirror, {}).get("flips")
    flips = flips if flips is not None and bool(flips.any()) else None
    if set(spelled) <= {"M", "F"} and (is_interleaved(out) or is_planar(out)):
        there = None if flips is None else on_device(flips, pixels.device)
        finish_bytes(pixels, out, there, values_for(_maker(chain), dtype, pixels.device))
        return out
    erases_after = "FE" in spelled
    steps = 4 * spelled.count("J") + spelled.count("G") + spelled.count("E") - erases_after
    empty = torch.zeros(
        (len(pixels), _CODES + 2 * steps), dtype=torch.int32, pin_memory=pixels.is_cuda,
        device="cpu",
    )  # fmt: skip
    plans = _plans(chain, flips, empty, erases_after=erases_after)
    _run_plans(pixels, out, on_device(plans, pixels.device), chain)
    return out


def _run_plans(
    pixels: torch.Tensor, out: torch.Tensor, plans: torch.Tensor, chain: Sequence[Link]
) -> None:
    count, _, height, width = pixels.shape
    values = values_for(_maker(chain), out.dtype, pixels.device)
    ranges = next((s.ranges for s, _ in chain if isinstance(s, Jitter)), (None,) * 4)
    filler = next((s.value for s, _ in chain if isinstance(s, Erase)), (0.0, 0.0, 0.0))
    grid = (count * triton.cdiv(height * width, BLOCK),)
    reciprocal, quick = reciprocal_of(width, height)
    sizes, sums = (width, height, reciprocal), plans.view(torch.int64)
    shared = {
        "STEPS": (plans.shape[1] - _CODES) // 2, "HUE": ranges[3] is not None, "QUICK": quick,
        "BLOCK": BLOCK, "num_warps": WARPS, "enable_fp_fusion": False,
    }  # fmt: skip
    means = ranges[1] is not None
    if means:
        kernels.sum_grey[grid](pixels, plans, sums, *sizes, *pixels.stride(), *filler, **shared)
    kernels.run[grid](
        pixels, out, values.table, plans, sums, *sizes, *pixels.stride(), *out.stride(), *filler,
        *values.constants, MEANS=means, HOW=values.how, ERASES_AFTER="FE" in _spelled(chain),
        INTERLEAVED=is_interleaved(out), PLANAR=is_planar(out), **shared,
    )  # fmt: skip


def _maker(chain: Sequence[Link]) -> Finish | None:
    return next((s for s, _ in chain if isinstance(s, Finish) and s.kind == "float"), None)


def _plans(
    chain: Sequence[Link], flips: torch.Tensor | None, plans: torch.Tensor, *, erases_after: bool
) -> torch.Tensor:
    """Write the plans of all pictures into zeros, int32[N, words], and give them back. They are one
    tensor, as every copy costs.
    """
    words = plans.numpy()
    code, steps = _CODES, (words.shape[1] - _CODES) // 2
    amounts = words.view(np.float32)
    if flips is not None:
        words[:, _FLIPS] = flips.numpy()
    for stage, drawn in chain:
        if isinstance(stage, Jitter):
            known = [c if r is not None else 0 for c, r in zip(_JITTER, stage.ranges, strict=True)]
            order = drawn["order"]
            words[:, code : code + 4] = np.array(known, np.int32).take(order.numpy())
            in_turn = drawn["amounts"].gather(1, order).numpy()
            amounts[:, code + steps : code + steps + 4] = in_turn
            code += 4
        elif isinstance(stage, Grayscale):
            words[:, code] = drawn["chosen"].numpy() * np.int32(_GREY)
            code += 1
        elif isinstance(stage, Erase):
            words[:, _BOX:_FLIPS] = drawn["boxes"].numpy()
            if not erases_after:
                words[:, code] = _ERASE
                code += 1
    return plans
