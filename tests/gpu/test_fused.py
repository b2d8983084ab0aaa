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
from slipstream.augment.batch_steps import Erase, Grayscale, Mirror
from slipstream.augment.finish import Finish

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


def test_flips_are_in_the_kernel_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_itself(*_: object) -> None:
        raise AssertionError("a step runs by itself")

    for step, name in ((Mirror, "apply"), (Grayscale, "apply"), (Erase, "apply")):
        monkeypatch.setattr(step, name, by_itself)
    monkeypatch.setattr(Finish, "apply_to_batch", by_itself)
    pixels = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, device="cuda")
    for before, behind in (COLOURS["none"], COLOURS["erased"]):
        augment = slipstream.Augment(*FLIPS, *before, ToTensor(torch.float16), NORMALIZE, *behind)
        assert augment(pixels).is_cuda
