"""Batches that stay where the first one lay."""

import pickle

import pytest
import torch
from torch.utils.data import TensorDataset

import slipstream
from slipstream.errors import UsageError
from slipstream.loader.loader import Loader
from slipstream.loader.static import StaticBatch


def rows(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count * 3.0).view(count, 3), torch.arange(count))


def test_every_batch_lies_where_the_first_lay() -> None:
    loader = Loader(rows(12), 4, static=True)
    seen = [(x.data_ptr(), y.data_ptr(), x.clone(), y.clone()) for x, y in loader]
    assert len({place for place, _, _, _ in seen}) == 1
    assert len({place for _, place, _, _ in seen}) == 1
    plain = list(Loader(rows(12), 4))
    for (_, _, x, y), (expected_x, expected_y) in zip(seen, plain, strict=True):
        assert torch.equal(x, expected_x) and torch.equal(y, expected_y)


def test_the_next_epoch_uses_the_same_memory() -> None:
    loader = Loader(rows(8), 4, static=True)
    places = {x.data_ptr() for _ in range(3) for x, _ in loader}
    assert len(places) == 1


def test_a_shorter_batch_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="drop_last=True"):
        list(Loader(rows(10), 4, static=True))
    assert len(list(Loader(rows(10), 4, static=True, drop_last=True))) == 2


def test_without_it_batches_are_their_owners() -> None:
    kept = [x for x, _ in Loader(rows(8), 4)]
    assert not torch.equal(kept[0], kept[1])


def test_a_batch_with_more_tensors_does_not_fit() -> None:
    static = StaticBatch()
    static.fill([torch.ones(2)])
    with pytest.raises(UsageError, match="nothing there"):
        static.fill([torch.ones(2), torch.ones(2)])


def test_a_pickled_loader_has_memory_of_its_own() -> None:
    loader = slipstream.Loader(rows(8), 4, static=True)
    first = next(iter(loader))[0]
    other = pickle.loads(pickle.dumps(loader))
    assert next(iter(other))[0].data_ptr() != first.data_ptr()
