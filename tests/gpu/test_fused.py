"""`Augment` on batches that are on a GPU: bit for bit what the processor gives."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import slipstream
from slipstream.augment import (
    ColorJitter,
    Normalize,
    RandAugment,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    ToTensor,
    TrivialAugmentWide,
    auto_augment,
)
from slipstream.augment.auto_augment import NAMES, RAND_AUGMENT, TRIVIAL_AUGMENT, AutoAugment
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


@pytest.mark.parametrize("before", [RandAugment(), RandomErasing(1.0)])
def test_flips_behind_what_places_pixels(before: Any) -> None:
    pixels = torch.randint(0, 256, (16, 3, 37, 45), dtype=torch.uint8)
    for flips in (FLIPS[:1], FLIPS):
        check([before, *flips, ToTensor(torch.float16, torch.channels_last), NORMALIZE], pixels)


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


BINS = 31
SOURCES = ["contiguous", "channels last", "part"]


def source(kind: str, count: int, height: int, width: int) -> torch.Tensor:
    """Noise, dull noise, and one colour."""
    pixels = torch.randint(0, 256, (count, 3, height + 2, width + 3), dtype=torch.uint8)
    pixels[1::3] = pixels[1::3] // 4 + 50
    pixels[2::9] = 77
    pixels = pixels[:, :, 1:-1, 2:-1]
    if kind == "part":
        return pixels
    wanted = LAYOUTS[SOURCES.index(kind)]
    return pixels.contiguous(memory_format=wanted)


def check_step(step: AutoAugment, choice: Any, pixels: torch.Tensor) -> None:
    drawn = step.chosen(choice, *pixels.shape[2:])
    there = torch.empty_strided(
        pixels.shape, pixels.stride(), dtype=torch.uint8, device="cuda"
    ).copy_(pixels)
    before = there.clone()
    here, got = step.apply(pixels, drawn), step.apply(there, drawn)
    assert got.is_cuda and got.stride() == here.stride() and torch.equal(there, before)
    differs = (got.cpu() != here).flatten(1).any(1).nonzero().view(-1).tolist()
    assert not differs, {NAMES[which] for k in differs for which in drawn["which"][k].tolist()}


@pytest.mark.parametrize("strengths", [RAND_AUGMENT, TRIVIAL_AUGMENT])
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("size", [(48, 32), (37, 45), (64, 224), (2, 9), (3, 3), (1, 1)])
def test_every_change_in_every_bin(strengths: Any, kind: str, size: tuple[int, int]) -> None:
    choice = np.arange(len(NAMES) * BINS * 2)
    for turns in (1, 3):
        orders = [np.random.default_rng(k).permutation(choice) for k in range(turns)]
        step = AutoAugment(strengths, turns, None, BINS, 0)
        check_step(step, np.stack(orders, axis=1), source(kind, len(choice), *size))


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("which", range(len(NAMES)))
def test_a_change_of_one_picture(which: int, kind: str) -> None:
    step = AutoAugment(TRIVIAL_AUGMENT, 1, None, BINS, 0)
    for size, last in itertools.product([(224, 224), (225, 223)], (50, 61)):
        choice = np.array([[which * BINS * 2 + last]])
        check_step(step, choice, source(kind, 1, *size))


@pytest.mark.parametrize("op", [RandAugment(), TrivialAugmentWide()])
def test_all_pictures_are_changed_at_once(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_themselves(*_: object) -> None:
        raise AssertionError("some pictures are changed by themselves")

    pixels = torch.randint(0, 256, (70, 3, 48, 32), dtype=torch.uint8)
    for wanted in LAYOUTS:
        check([*FLIPS, op, ToTensor(torch.float16, wanted), NORMALIZE], pixels)
    monkeypatch.setattr(auto_augment, "apply_to_rows", by_themselves)
    assert slipstream.Augment(op)(pixels.cuda()).is_cuda
