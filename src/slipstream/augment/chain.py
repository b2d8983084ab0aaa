"""Chains of steps on the same pixel, the place where one kernel can do them all."""

import functools
import importlib.util
from collections.abc import Sequence

import torch

from slipstream.augment.batch_steps import BatchStep, Parameters
from slipstream.augment.finish import Finish

Stage = BatchStep | Finish
Link = tuple[Stage, Parameters]


@functools.cache
def has_triton() -> bool:
    """It comes with torch for CUDA on Linux."""
    return importlib.util.find_spec("triton") is not None


def apply_chain(
    pixels: torch.Tensor,
    chain: Sequence[Link],
    *,
    dtype: torch.dtype,
    memory_format: torch.memory_format,
) -> torch.Tensor:
    """Point-wise stages after one another, on the device of `pixels`, [N, 3, H, W] in any strides.

    Each stage comes with its parameters, small tensors in the processor's memory; a `Finish` has
    none. Values between the stages are uint8 up to the `Finish` that makes floats, float32 from
    there on; the result is rounded to `dtype` once. It may share memory with `pixels` where there
    is nothing to do.
    """
    if pixels.is_cuda and has_triton():
        from slipstream.augment.fused import can_fuse, run_chain

        if can_fuse(pixels, chain):
            # Kernels are launched on the current device.
            with torch.cuda.device(pixels.device):
                return run_chain(pixels, chain, dtype=dtype, memory_format=memory_format)
    for stage, drawn in chain:
        if isinstance(stage, Finish):
            pixels = stage.apply_to_batch(pixels)
        else:
            pixels = stage.apply(pixels, drawn)
    pixels = pixels.to(dtype, memory_format=memory_format)
    if memory_format is torch.preserve_format:
        return pixels
    return pixels.contiguous(memory_format=memory_format)
