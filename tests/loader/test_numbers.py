"""Sample numbers of a batch, in whatever form a sampler gives them."""

from typing import Any

import numpy as np
import pytest
import torch

from slipstream.loader.engine import as_numbers


@pytest.mark.parametrize(
    "given",
    [
        [3, 0, 9],
        (3, 0, -1),
        [np.int32(3), torch.tensor(0), 9],
        np.array([3, 0, -1]),
        np.array([3, 7, 0, 7, 9, 7], dtype=np.int16)[::2],
        np.array([3, 0, 9], dtype=np.uint64),
        torch.tensor([3, 0, -1]),
        torch.tensor([[3], [0], [9]]),
        iter([3, 0, 9]),
    ],
)
def test_all_forms_are_the_same(given: Any) -> None:
    numbers = as_numbers(given, 10)
    assert numbers.dtype == np.int64 and numbers.tolist() == [3, 0, 9]


def test_none_at_all() -> None:
    assert as_numbers([], 10).tolist() == as_numbers(np.array([], dtype=np.int64), 0).tolist() == []


def test_the_array_given_is_not_kept() -> None:
    given = np.array([1, 2])
    numbers = as_numbers(given, 10)
    given[:] = 0
    assert numbers.tolist() == [1, 2]


@pytest.mark.parametrize("outside", [10, -11, 1 << 62])
def test_outside(outside: int) -> None:
    for given in ([0, outside], np.array([0, outside]), torch.tensor([0, outside])):
        with pytest.raises(IndexError, match="outside a dataset of 10"):
            as_numbers(given, 10)


@pytest.mark.parametrize(
    "given", [[1.0], ["1"], [None], np.array([1.0]), np.array([True]), torch.tensor([1.0]), 3]
)
def test_no_integers(given: Any) -> None:
    with pytest.raises(TypeError):
        as_numbers(given, 10)
    with pytest.raises(OverflowError):
        as_numbers([1 << 70], 10)
