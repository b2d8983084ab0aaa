"""`Augment` on batches that are on a GPU: bit for bit what the processor gives."""

import itertools
from typing import Any

import pytest
import torch

import slipstream
from slipstream.augment import (
    ColorJitter,
    Normalize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    ToTensor,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FLIPS = [RandomHorizontalFlip(), RandomVerticalFlip()]
NORMALIZE = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LAYOUTS = [torch.contiguous_format, torch.channels_last]
# Colours before ToTensor, and what comes behind Normalize.
COLOURS: dict[str, tuple[list[Any], list[Any]]] = {
    "none": ([], []),
    "jitter": ([ColorJitter(0.4, 0.4, 0.4, 0.1)], []),
    "erased": ([RandomGrayscale(0.5)], [RandomErasing(1.0, value=(0.3, -0.7, 1.1))]),
}


def check(ops: list[Any], pixels: torch.Tensor) -> None:
    augment = slipstream.Augment(*ops)
    torch.manual_seed(0)
    here = augment(pixels)
    torch.manual_seed(0)
    there = augment(pixels.cuda())
    assert there.is_cuda and there.dtype == here.dtype and torch.equal(there.cpu(), here)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", COLOURS)
def test_values_are_the_processors(name: str, dtype: torch.dtype) -> None:
    before, behind = COLOURS[name]
    for (height, width), given, wanted in itertools.product([(48, 32), (37, 45)], LAYOUTS, LAYOUTS):
        pixels = torch.randint(0, 256, (6, 3, height, width), dtype=torch.uint8)
        ops = [*FLIPS, *before, ToTensor(dtype, wanted), NORMALIZE, *behind]
        check(ops, pixels.contiguous(memory_format=given))


@pytest.mark.parametrize("size", [(1, 1), (5, 1), (1, 7)])
def test_smallest_pictures(size: tuple[int, int]) -> None:
    pixels = torch.randint(0, 256, (9, 3, *size), dtype=torch.uint8)
    check([*FLIPS, ToTensor(torch.float16, torch.channels_last), NORMALIZE], pixels)
    check([*FLIPS, ColorJitter(0.4, 0.4)], pixels)


def test_flips_are_one_kernel_with_the_rest() -> None:
    pixels = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, device="cuda")
    for colours in ([], [RandomGrayscale(1.0)]):
        augment = slipstream.Augment(
            RandomHorizontalFlip(0.5), *colours, ToTensor(torch.float16), NORMALIZE
        )
        augment(pixels)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            augment(pixels)
            torch.cuda.synchronize()
        names = [event.name for event in profile.events() if "Mem" not in event.name]
        kernels = [name for name in names if not name.startswith("cu")]
        assert len(kernels) == 1, kernels
