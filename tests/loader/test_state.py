"""States taken and loaded at odd moments."""

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, Subset

import slipstream
from slipstream.augment import RandomResizedCrop, ToTensor
from slipstream.errors import UsageError
from slipstream.loader.loader import Loader
from tests.pictures import write_flat


class Numbers(Dataset[int]):
    """Sample k is k; some raise."""

    def __init__(self, count: int = 20, bad: int = -1) -> None:
        self.count = count
        self.bad = bad

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise ValueError("bad")
        return index


def lists(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_whose_error_was_caught_has_been_had(workers: int) -> None:
    loader = Loader(Numbers(bad=5), 4, num_workers=workers)
    batches, had = iter(loader), []
    for _ in range(3):
        try:
            had.append(next(batches).tolist())
        except ValueError:
            had.append(None)
    assert had == [[0, 1, 2, 3], None, [8, 9, 10, 11]]
    assert loader.state_dict()["position"] == 12


def test_kept_workers_and_a_generator_resume_in_a_later_epoch() -> None:
    def make() -> Loader[Any]:
        generator = torch.Generator().manual_seed(1)
        return Loader(
            Numbers(), 4, shuffle=True, num_workers=1, persistent_workers=True, generator=generator
        )

    loader = make()
    list(loader)
    batches = iter(loader)
    next(batches), next(batches)
    state = loader.state_dict()
    rest = lists(batches)
    again = make()
    again.load_state_dict(state)
    assert lists(again) == rest
    assert lists(again) == lists(loader)
    for one in (loader, again):
        one.close()


def test_the_samplers_set_epoch_is_the_loaders() -> None:
    loader, other = (Loader(Numbers(), 4, shuffle=True) for _ in range(2))
    loader.sampler.set_epoch(5)
    other.set_epoch(5)
    assert lists(loader) == lists(other)


def test_a_state_of_another_batch_size_with_a_sampler_is_refused() -> None:
    loader = Loader(Numbers(), 4, sampler=range(20))
    next(iter(loader))
    with pytest.raises(UsageError, match="its batch_size is 4, here it is 2"):
        Loader(Numbers(), 2, sampler=range(20)).load_state_dict(loader.state_dict())


def test_an_iteration_from_before_loading_counts_no_longer() -> None:
    loader = Loader(Numbers(), 4)
    start = loader.state_dict()
    old = iter(loader)
    next(old)
    loader.load_state_dict(start)
    new = iter(loader)
    next(new)
    list(old)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (0, 4)


def test_set_epoch_gives_up_what_was_left_before_its_end() -> None:
    loader = Loader(Numbers(), 4, shuffle=True)
    for _ in loader:
        break
    loader.set_epoch(1)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)


@pytest.mark.parametrize("epoch", [-1, 1.5, 1 << 70, None])
def test_epochs_are_checked(epoch: Any) -> None:
    with pytest.raises(UsageError, match="expected an integer from 0"):
        Loader(Numbers(), 4).set_epoch(epoch)


def test_a_transformed_dataset_keeps_its_transform_and_its_epochs(tmp_path: Any) -> None:
    dataset = slipstream.open_dataset(write_flat(tmp_path / "flat", 4))
    transform = [RandomResizedCrop(16), ToTensor()]
    loader = Loader(dataset, 4, transform=transform)
    assert next(iter(Loader(loader.dataset, 4)))["image"].shape == (4, 3, 16, 16)
    subset = Loader(Subset(loader.dataset, [0, 1]), 2, num_workers=1)
    first, second = (next(iter(subset))["image"].clone() for _ in range(2))
    assert not torch.equal(first, second)


def test_what_a_batch_holds_is_not_looked_at_closely() -> None:
    """A batch may be large, compute its items, or hold itself."""

    class Lazy(list[int]):
        def __iter__(self) -> Any:
            raise AssertionError("was read")

    knot: list[Any] = []
    knot.append(knot)
    for batch in (Lazy([1, 2]), knot, [list(range(1000))] * 1000):
        loader = Loader(Numbers(), 4, collate_fn=lambda _, batch=batch: batch)
        assert next(iter(loader)) is batch
