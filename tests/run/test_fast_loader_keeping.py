"""Workers that live on from one epoch to the next, and give what new ones would."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from slipstream.run.loading.watch import Watch
from tests.run.keeping_kit import Drawing, compare, loader_of, passes, shown, with_fix


class Counting(Drawing):
    """Every worker counts what it has read."""

    def __getitem__(self, index: int) -> Any:
        self.count += 1
        return *super().__getitem__(index)[:-1], self.count, os.getpid()


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffled": dict,
    "one worker": lambda: {"num_workers": 1},
    "own generator": lambda: {"generator": torch.Generator().manual_seed(1)},
    "in order": lambda: {"shuffle": False, "prefetch_factor": 1},
    "last dropped": lambda: {"batch_size": 5, "drop_last": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_workers_stay_and_draw_what_new_ones_would(options: Any) -> None:
    pids, situation = compare(lambda: passes(loader_of(Drawing(), **options())))
    assert pids[0] == pids[1] == pids[2]
    assert any("live on" in line for line in situation.notes["fast-loader"])


def test_a_dataset_that_the_script_changes_is_seen() -> None:
    def use() -> Any:
        dataset = Drawing()
        return passes(loader_of(dataset), lambda epoch: setattr(dataset, "epoch", epoch + 1))

    pids, _ = compare(use)
    assert not pids[0] & pids[1]


class Holding(Drawing):
    """Holds what is changed in its place: of an installed package, deep in a long list, large."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = SimpleNamespace(size=1)
        self.rows = [{"label": k} for k in range(400)]
        self.array = np.zeros(1 << 20)

    def __getitem__(self, index: int) -> Any:
        found = self.settings.size, self.rows[399]["label"], float(self.array[-1])
        return *super().__getitem__(index)[:-1], found, os.getpid()


def change_settings(dataset: Holding, epoch: int) -> None:
    dataset.settings.size = epoch


def change_row(dataset: Holding, epoch: int) -> None:
    dataset.rows[399]["label"] = -1 - epoch


def change_array(dataset: Holding, epoch: int) -> None:
    dataset.array[-1] = epoch + 1


@pytest.mark.parametrize("change", [change_settings, change_row, change_array])
def test_changes_in_place_are_seen(change: Any) -> None:
    def use() -> Any:
        dataset = Holding()
        return passes(loader_of(dataset), lambda epoch: change(dataset, epoch))

    compare(use)


def test_a_dataset_that_cannot_be_looked_through_gets_new_workers() -> None:
    def use() -> Any:
        dataset = Drawing()
        dataset.hook = lambda: 1  # type: ignore[attr-defined]
        return passes(loader_of(dataset))

    pids, _ = compare(use)
    assert not pids[0] & pids[1]


def test_what_a_worker_changes_is_forgotten_with_it() -> None:
    pids, _ = compare(lambda: passes(loader_of(Counting())))
    assert not pids[0] & pids[1] and not pids[1] & pids[2]


def note_seed(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.epoch = int(torch.randint(1000, ()))


def test_workers_with_a_function_of_their_own_end() -> None:
    pids, _ = compare(lambda: passes(loader_of(Drawing(), worker_init_fn=note_seed)))
    assert not pids[0] & pids[1]


def test_an_epoch_that_is_left_early_and_one_inside_another() -> None:
    def use() -> Any:
        loader = loader_of(Drawing())
        seen = [shown(next(iter(loader))[:-1])]
        for batch, _ in zip(loader, range(2), strict=False):
            seen.append(shown(batch[:-1]))
            seen += [shown(inner[:-1]) for inner in loader]
        more, pids = passes(loader)
        return [seen, more], pids

    compare(use)


def test_an_iterator_that_has_ended_stays_so() -> None:
    def use() -> Any:
        loader = loader_of(Drawing())
        first = iter(loader)
        list(first)
        second = iter(loader)
        assert isinstance(second, _MultiProcessingDataLoaderIter)
        assert second is not first and next(first, None) is None
        return len(list(second))

    assert with_fix(use)[0] == 6


def test_workers_that_died_meanwhile_are_replaced() -> None:
    def use() -> Any:
        loader = loader_of(Drawing())
        torch.manual_seed(1)
        pids = {int(pid) for batch in loader for pid in batch[-1]}
        for pid in pids:
            os.kill(pid, 9)
        for pid in pids:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return [shown(batch[:-1]) for batch in loader]

    def plainly() -> Any:
        loader = loader_of(Drawing())
        torch.manual_seed(1)
        list(loader)
        return [shown(batch[:-1]) for batch in loader]

    assert with_fix(use)[0] == plainly()


def test_nothing_is_left_when_the_loader_is_gone() -> None:
    def use() -> Any:
        return passes(loader_of(Drawing()))[1][0]

    pids, _ = with_fix(use)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_settings_in_a_module_of_the_script_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_settings.py").write_text("size = 1\nother = 2\n")
    (tmp_path / "own_data.py").write_text(
        "import own_settings\n\ndef read(index):\n    return index * own_settings.size\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data, settings = map(importlib.import_module, ("own_data", "own_settings"))
    watch = Watch([data.read])
    settings.other = 3
    assert watch.is_same()
    settings.size = 2
    assert not watch.is_same()
