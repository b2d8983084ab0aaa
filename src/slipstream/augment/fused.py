"""Chains of point-wise steps on a GPU, in one kernel: bytes in, what training takes out.

Every picture has a program, a row of codes and amounts that its pixels go through without leaving
the registers. The arithmetic is that of `color`, operation by operation, so results are those of
the processor.
"""

from collections.abc import Sequence

import torch
import triton

from slipstream.augment import kernels
from slipstream.augment.batch_steps import BatchStep, Erase, Grayscale, Jitter, Parameters
from slipstream.augment.finish import Finish, byte_values

Link = tuple[BatchStep | Finish, Parameters]

_BLOCK = 1024
_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE, _GREY, _ERASE = range(1, 7)  # 0: nothing
_JITTER = (_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE)


def can_fuse(pixels: torch.Tensor, chain: Sequence[Link]) -> bool:
    """Whether the kernel knows this chain: bytes come in, and colours change before floats are
    made, contrast at most once.
    """
    if pixels.dtype != torch.uint8:
        return False
    seen: set[type] = set()
    for stage, _ in chain:
        kind = type(stage)
        if kind not in (Jitter, Grayscale, Erase, Finish) or (kind in seen and kind is not Finish):
            return False
        makes_floats = isinstance(stage, Finish) and stage.kind == "float"
        if Finish in seen and (makes_floats or kind in (Jitter, Grayscale)):
            return False
        if makes_floats or kind is not Finish:
            seen.add(kind)
    return True


def run_chain(
    pixels: torch.Tensor,
    chain: Sequence[Link],
    *,
    dtype: torch.dtype,
    memory_format: torch.memory_format,
) -> torch.Tensor:
    """As `chain.apply_chain`, for chains that `can_fuse`."""
    count, _, height, width = pixels.shape
    device, area = pixels.device, height * width
    program = _program(chain, count)
    codes, amounts, boxes = (part.to(device, non_blocking=True) for part in program)
    out = torch.empty_like(pixels, dtype=dtype, memory_format=memory_format)
    table = byte_values(_maker(chain), dtype, device)
    filler, erases_after = _eraser(chain)
    grid, steps = (count, triton.cdiv(area, _BLOCK)), codes.shape[1]
    means = amounts
    if any(isinstance(stage, Jitter) and stage.ranges[1] is not None for stage, _ in chain):
        sums = torch.zeros(count, dtype=torch.int64, device=device)
        kernels.sum_grey[grid](
            pixels, sums, codes, amounts, boxes, width, area, *pixels.stride(), *filler,
            STEPS=steps, BLOCK=_BLOCK, enable_fp_fusion=False,
        )  # fmt: skip
        # Divided as the processor does: by a number, CUDA multiplies by its reciprocal instead.
        whole = torch.full((count,), float(area), dtype=torch.float64, device=device)
        means = (sums.to(torch.float64) / whole).to(torch.float32)
    kernels.run[grid](
        pixels, out, table, codes, amounts, boxes, means, width, area, *pixels.stride(),
        *out.stride(), *filler, STEPS=steps, BLOCK=_BLOCK, ERASES_AFTER=erases_after,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


def _maker(chain: Sequence[Link]) -> Finish | None:
    makers = [s for s, _ in chain if isinstance(s, Finish) and s.kind == "float"]
    return makers[0] if makers else None


def _eraser(chain: Sequence[Link]) -> tuple[tuple[float, float, float], bool]:
    """The colour that boxes are filled with, and whether they are filled with floats."""
    floats = False
    for stage, _ in chain:
        if isinstance(stage, Erase):
            return stage.value, floats
        floats |= isinstance(stage, Finish) and stage.kind == "float"
    return (0.0, 0.0, 0.0), False


def _program(chain: Sequence[Link], count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes int32[N, steps] and amounts float32[N, steps] of bytes, and boxes int32[N, 4]."""
    codes: list[torch.Tensor] = [torch.zeros(count, dtype=torch.int32)]
    amounts: list[torch.Tensor] = [torch.zeros(count)]
    boxes = torch.zeros((count, 4), dtype=torch.int32)
    erases_after = _eraser(chain)[1]
    for stage, drawn in chain:
        if isinstance(stage, Jitter):
            known = [c if r is not None else 0 for c, r in zip(_JITTER, stage.ranges, strict=True)]
            order = drawn["order"]
            codes += torch.tensor(known, dtype=torch.int32)[order].unbind(1)
            amounts += drawn["amounts"].gather(1, order).unbind(1)
        elif isinstance(stage, Grayscale):
            codes.append(drawn["chosen"].to(torch.int32) * _GREY)
            amounts.append(torch.zeros(count))
        elif isinstance(stage, Erase):
            boxes = drawn["boxes"].to(torch.int32)
            if not erases_after:
                codes.append(torch.full((count,), _ERASE, dtype=torch.int32))
                amounts.append(torch.zeros(count))
    return torch.stack(codes, 1), torch.stack(amounts, 1), boxes.contiguous()
