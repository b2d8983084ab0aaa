"""What makes batches in the loop's own process, when a batch cannot be made."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from slipstream.errors import CorruptDataset
from slipstream.loader import sources
from slipstream.loader.loader import Loader
from slipstream.pack.pack import pack_dataset
from slipstream.store.dataset import open_dataset
from tests.loader.damage import damage
from tests.loader.fake_lane import FakeLane
from tests.loader.made_data import plain

COUNT = 23


def rows_with_a_number_outside(folder: Path) -> Loader[Any]:
    numbers = list(range(COUNT))
    numbers[9] = COUNT
    return Loader(TensorDataset(torch.arange(COUNT)), batch_size=4, sampler=numbers)


def packed_with_a_damaged_sample(folder: Path) -> Loader[Any]:
    path = folder / "arrays.slip"
    if not path.exists():
        pack_dataset([{"x": np.full(5, k)} for k in range(COUNT)], path)
        damage(path, "x", [9])
    return Loader(open_dataset(path), batch_size=4)


def through_the_error(loader: Loader[Any], kind: str) -> list[Any]:
    """Batches and states, from the first to the last, the error among them."""
    batches, seen = iter(loader), []
    assert type(batches._start()._maker).__name__ == kind  # type: ignore[attr-defined]
    while True:
        try:
            seen.append((plain(next(batches)), loader.state_dict()))
        except StopIteration:
            return [*seen, loader.state_dict()]
        except (CorruptDataset, IndexError) as error:
            seen.append((str(error), loader.state_dict()))


@pytest.mark.parametrize("make", [rows_with_a_number_outside, packed_with_a_damaged_sample])
def test_an_error_caught_by_the_loop_counts_as_a_batch(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = through_the_error(make(tmp_path), "_InlineBatches")
    loader = make(tmp_path)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    with pytest.raises((CorruptDataset, IndexError)):
        next(batches)
    resumed = make(tmp_path)
    resumed.load_state_dict(loader.state_dict())
    assert plain(next(iter(resumed))) == inline[3][0]

    monkeypatch.setattr(sources, "_INLINE_BYTES", 0)
    assert through_the_error(make(tmp_path), "ThreadedBatches") == inline


def test_an_error_on_the_way_to_a_device_counts_as_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prefetcher hands it on in its place and goes on."""
    expected = through_the_error(packed_with_a_damaged_sample(tmp_path), "_InlineBatches")
    ahead: list[sources.Source] = []

    def through_a_lane(maker: Any, device: Any, lane: Any) -> sources.Source:
        ahead.append(made := plain_source(maker, None, FakeLane()))
        return made

    plain_source = sources.Source
    monkeypatch.setattr(sources, "Source", through_a_lane)
    loader = packed_with_a_damaged_sample(tmp_path)
    assert through_the_error(loader, "_InlineBatches") == expected
    assert len(ahead) == 1


def test_an_error_that_ends_all_ends_it_on_the_way_to_a_device_too() -> None:
    def broken() -> Iterator[Any]:
        raise RuntimeError("nobody makes batches any more")
        yield

    source = sources.Source(broken(), None, FakeLane())
    with pytest.raises(RuntimeError, match="any more"):
        next(source)
    with pytest.raises(StopIteration):
        next(source)
