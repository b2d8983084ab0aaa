"""Wrong arguments are told when an op is made, and wrong pictures when it is called."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import slipstream
from slipstream.augment import (
    CenterCrop,
    CutMix,
    GaussianBlur,
    Mixup,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
    TrivialAugmentWide,
)
from slipstream.errors import UsageError

HALF = (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RandomHorizontalFlip(1.5),
            r"^RandomHorizontalFlip: p 1\.5 is not within 0 to 1\.$",
        ),
        (lambda: RandomVerticalFlip(-0.1), r"^RandomVerticalFlip: p -0\.1 is not within 0 to 1\.$"),
        (lambda: RandomHorizontalFlip("often"), "p 'often' is not a number"),
        (lambda: Normalize(HALF, (0.5, 0.0, 0.5)), r"^Normalize: std has a zero\.$"),
        (lambda: Normalize(HALF, (0.5, 0.5)), r"std has shape \[2\], the picture 3 channels"),
        (lambda: Normalize((0.5,) * 4, HALF), r"mean has shape \[4\], the picture 3 channels"),
        (lambda: Normalize("grey", HALF), "mean 'grey' is not a list of numbers"),
        (lambda: RandomResizedCrop(0), "size 0 is not a number of pixels from 1"),
        (lambda: RandomResizedCrop(22.4), r"size 22\.4 is not a number of pixels from 1"),
        (lambda: RandomResizedCrop(8, scale=(1.0, 0.5)), "0 <= min <= max"),
        (lambda: RandomResizedCrop(8, scale=0.5), r"scale 0\.5 is not \(min, max\)"),
        (lambda: RandomResizedCrop(8, ratio=(0.0, 1.0)), r"ratio \(0\.0, 1\.0\) is not above 0"),
        (
            lambda: RandomResizedCrop(8, interpolation="cubic"),
            "interpolation 'cubic' is none of nearest, box, bilinear, bicubic, lanczos",
        ),
        (lambda: Resize(8, "area"), "^Resize: interpolation 'area' is none of nearest, box"),
        (lambda: Resize(8, max_size=8), "max_size 8 is not larger than size 8"),
        (lambda: CenterCrop((8, -1)), "size -1 is not a number of pixels"),
        (lambda: RandomCrop("8"), "size '8' is not a number of pixels"),
        (lambda: RandomCrop(8, (1, 2, 3)), r"padding \(1, 2, 3\) is not one, two or four numbers"),
        (lambda: RandomCrop(8, -1), "padding -1 is not one, two or four numbers of pixels"),
        (
            lambda: ToTensor("float16"),
            r"^ToTensor's dtype is 'float16', expected torch\.float32, torch\.float16 or",
        ),
        (lambda: ToTensor(torch.uint8), r"dtype is torch\.uint8, .* PILToTensor gives bytes\.$"),
        (lambda: RandAugment(2, 31), "magnitude 31 is not a whole number from 0 to 30"),
        (lambda: RandAugment(2, 5, 5), "magnitude 5 is not a whole number from 0 to 4"),
        (lambda: TrivialAugmentWide(1), "num_magnitude_bins 1 is not a whole number from 2"),
        (Mixup, "^Mixup: num_classes None is not a whole number from 2"),
        (CutMix, "^CutMix: num_classes None is not a whole number from 2"),
    ],
)
def test_arguments_are_checked_when_an_op_is_made(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_what_may_be_given() -> None:
    assert Mixup(num_classes=3).alpha == CutMix(num_classes=3).alpha == 1.0
    assert Normalize((0.5,), torch.tensor(HALF)).mean == (0.5,)
    assert RandomResizedCrop([8, 9], [0.1, 1.0]).size == [8, 9]
    assert RandomHorizontalFlip(1).p == 1


@pytest.mark.parametrize("kernel", [(17, 3), (3, 17)])
def test_a_blur_that_is_larger_than_the_picture(kernel: tuple[int, int]) -> None:
    message = r"GaussianBlur: kernel_size .* is too large for pictures of 8 x 8"
    for given in (torch.zeros(2, 3, 8, 8), torch.zeros(3, 8, 8), np.zeros((8, 8, 3), np.uint8)):
        with pytest.raises(UsageError, match=message):
            slipstream.Augment(GaussianBlur(kernel))(given)
    largest = GaussianBlur(15)(torch.zeros(2, 3, 8, 8))
    assert largest.shape == (2, 3, 8, 8)


def test_arrays_are_single_pictures() -> None:
    augment = slipstream.Augment(RandomHorizontalFlip())
    batch = np.zeros((4, 3, 8, 8), np.uint8)
    with pytest.raises(UsageError, match=r"Augment wants arrays uint8\[.*from_numpy"):
        augment(batch)
    with pytest.raises(UsageError, match=r"got float64\[8, 8, 3\]"):
        augment(np.zeros((8, 8, 3)))
    assert augment(batch[0].transpose(1, 2, 0)).size == (8, 8)
