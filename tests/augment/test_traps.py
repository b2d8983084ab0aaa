"""What callers do around `Augment`: modes, devices, memory of their own."""

import pytest
import torch

import slipstream
from slipstream.augment import (
    Normalize,
    RandomErasing,
    RandomHorizontalFlip,
    ToTensor,
)
from slipstream.errors import UsageError


def test_inference_mode_leaves_nothing_behind() -> None:
    augment = slipstream.Augment(ToTensor(), Normalize((0.11,), (0.37,)))
    with torch.inference_mode():
        augment(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
    pixels = torch.rand(2, 3, 4, 4, requires_grad=True)
    slipstream.Augment(Normalize((0.11,), (0.37,)))(pixels).sum().backward()
    assert pixels.grad is not None


def test_another_default_device() -> None:
    augment = slipstream.Augment(RandomHorizontalFlip(), ToTensor(), Normalize((0.23,), (0.31,)))
    pixels = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
    torch.manual_seed(3)
    expected = augment(pixels)
    torch.set_default_device("meta")
    try:
        torch.manual_seed(3)
        assert torch.equal(augment(pixels), expected)
    finally:
        torch.set_default_device(None)


def test_the_result_is_never_the_callers_memory() -> None:
    pixels = torch.rand(2, 3, 4, 4)
    for _ in range(20):
        assert RandomHorizontalFlip()(pixels).data_ptr() != pixels.data_ptr()


def test_one_picture_is_a_batch_of_one() -> None:
    picture = torch.arange(3 * 4 * 4, dtype=torch.uint8).view(3, 4, 4)
    augment = slipstream.Augment(RandomHorizontalFlip(), ToTensor())
    for seed in range(10):
        torch.manual_seed(seed)
        alone = augment(picture)
        torch.manual_seed(seed)
        assert torch.equal(alone, augment(picture[None])[0])
    with pytest.raises(UsageError):
        Normalize((0.5,), (0.5,))(picture)


def test_erasing_bytes_with_what_is_no_byte() -> None:
    pixels = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    for value in (-2.1, 300.0, 1e10):
        with pytest.raises(UsageError, match="bytes from 0 to 255"):
            slipstream.Augment(RandomErasing(1.0, value=value), ToTensor())(pixels)
