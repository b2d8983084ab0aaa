"""`Loader.stats()`: numbers that add up."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from slipstream.loader.loader import Loader
from slipstream.loader.made import Made as MadeBatch
from slipstream.loader.stats import Stats, bytes_of, samples_in
from slipstream.store.dataset import open_dataset
from tests.loader import made_data
from tests.loader.made_data import Made, Stream
from tests.pictures import write_flat

COUNT = 23


def a_slow_row(k: int) -> Any:
    time.sleep(0.002)
    return torch.full((500,), float(k))


def of_python(**arguments: Any) -> Loader[Any]:
    return Loader(Made(a_slow_row, COUNT), batch_size=4, **arguments)


def of_tensors(width: int, **arguments: Any) -> Loader[Any]:
    return Loader(TensorDataset(torch.zeros(COUNT, width)), batch_size=4, **arguments)


LOADERS: dict[str, tuple[Callable[..., Loader[Any]], int]] = {
    "torch": (of_python, COUNT * 2000),
    "torch, sampler": (lambda: of_python(sampler=range(COUNT)), COUNT * 2000),
    "local": (lambda: of_python(on_error="skip"), COUNT * 2000),
    "workers": (lambda: of_python(num_workers=2), COUNT * 2000),
    "rows": (lambda: of_tensors(500), COUNT * 2000),
    "rows by threads": (lambda: of_tensors(50_000), COUNT * 200_000),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_numbers_add_up(kind: str) -> None:
    make, nbytes = LOADERS[kind]
    loader = make()
    began = time.perf_counter()
    for batch in loader:
        del batch
        time.sleep(0.01)
    wall_s = time.perf_counter() - began
    stats = loader.stats()
    assert stats["batches"] == 6
    assert stats["samples"] == COUNT
    # Workers fill slots of whole pages.
    assert stats["bytes"] == nbytes
    # All of the time is the loop's or was waited for, but for the end of the iteration itself.
    together = stats["wait_s"] + stats["loop_s"]
    assert 0.06 <= stats["loop_s"] <= together <= wall_s
    assert together == pytest.approx(wall_s, abs=0.25 if "workers" in kind else 0.05)
    assert stats["wait_share"] == pytest.approx(stats["wait_s"] / together)
    assert stats["samples_per_s"] == pytest.approx(COUNT / together)
    assert 0 < stats["first_wait_s"] <= stats["wait_s"]
    assert stats["fetch_s"] > (0.002 * COUNT if make is of_python else 0)
    assert stats["queue_depth"] >= 0
    assert json.loads(json.dumps(stats)) == stats


def test_seconds_of_workers_run_beside_the_loop() -> None:
    loader = of_python(num_workers=2)
    for _ in loader:
        time.sleep(0.05)
    stats = loader.stats()
    assert stats["fetch_s"] >= 0.002 * COUNT
    assert stats["collate_s"] > 0
    # Sleeping takes time, not processor time.
    assert stats["cpu_s"] < stats["fetch_s"]
    # Only the start and the first batch: the rest is there when the loop comes.
    assert stats["wait_s"] - stats["first_wait_s"] < 0.05
    assert stats["queue_depth"] > 0.5


def test_a_starved_loop_and_a_fed_one() -> None:
    shares = {}
    for step_s in (0.0, 0.03):
        loader = of_python()
        for _ in loader:
            time.sleep(step_s)
        shares[step_s] = loader.stats()["wait_share"]
    assert shares[0.0] > 0.8 and shares[0.03] < 0.5


def test_epochs_are_added_up() -> None:
    loader = of_tensors(10)
    assert loader.stats()["batches"] == 0
    assert loader.stats()["wait_share"] == loader.stats()["samples_per_s"] == 0.0
    first = None
    for epoch in (1, 2, 3):
        list(loader)
        stats = loader.stats()
        assert (stats["batches"], stats["samples"]) == (6 * epoch, COUNT * epoch)
        first = first or stats["first_wait_s"]
        assert stats["first_wait_s"] == first


def test_only_delivered_batches_count() -> None:
    loader = of_python(num_workers=2)
    batches = iter(loader)
    next(batches)
    time.sleep(0.3)
    assert (loader.stats()["batches"], loader.stats()["samples"]) == (1, 4)
    batches.close()


def test_pictures(tmp_path: Path) -> None:
    dataset = open_dataset(write_flat(tmp_path / "flat", 5), fields=["image"])
    loader = Loader(dataset, batch_size=1)
    shapes = [batch["image"].shape for batch in loader]
    stats = loader.stats()
    assert stats["bytes"] == sum(shape.numel() for shape in shapes)
    assert stats["samples"] == 5
    assert stats["fetch_s"] > 0 and stats["cpu_s"] > 0


def test_samples_of_a_stream_are_counted_by_its_batches() -> None:
    loader = Loader(Stream(COUNT), batch_size=4)
    list(loader)
    assert loader.stats()["samples"] == COUNT


def test_samples_left_out_are_not_counted() -> None:
    def some_bad(k: int) -> int:
        if k % 10 == 3:
            raise ValueError(k)
        return k

    loader = Loader(Made(some_bad, COUNT), batch_size=4, on_error="skip")
    list(loader)
    assert loader.stats()["samples"] == COUNT - 2
    assert len(loader.bad_samples) == 2


def test_means() -> None:
    stats = Stats()
    stats.add(MadeBatch(None, 4, 100, 0.5, 0.25, 0.125), wait_s=2.0, ready=3)
    stats.add(MadeBatch(None, 2, 50, 0.5, 0.25, 0.125), wait_s=1.0, ready=0)
    stats.loop_s = 9.0
    seen = stats.report()
    assert (seen["batches"], seen["samples"], seen["bytes"]) == (2, 6, 150)
    assert (seen["wait_s"], seen["first_wait_s"], seen["wait_share"]) == (3.0, 2.0, 0.25)
    assert (seen["fetch_s"], seen["collate_s"], seen["cpu_s"]) == (1.0, 0.5, 0.25)
    assert (seen["queue_depth"], seen["samples_per_s"]) == (1.5, 0.5)


def test_what_a_batch_holds() -> None:
    nested = made_data.nested(1)
    assert bytes_of(nested) == 2 * 4 + 8
    assert bytes_of("text") == 0
    assert samples_in([torch.zeros(3, 2), torch.zeros(3)], 4) == 3
    assert samples_in(torch.zeros(4), 4) == 4
    # Where it cannot be told: as many as were to be.
    assert samples_in(["a", "b"], 4) == 4
    assert samples_in([torch.zeros(3), torch.zeros(2)], 4) == 4
    assert samples_in(torch.zeros(9, 2), 4) == 4
