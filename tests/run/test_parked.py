"""Processes that wait for the next epoch: how many, for how long, and for the same dataset only."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from slipstream.run.fixes import parallel_loading
from slipstream.run.loading import parked
from tests.run.loading_kit import Compared, always_worth_it
from tests.run.loop_kit import situation


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    always_worth_it(monkeypatch)
    yield
    parked.end_all()


class Table(Dataset[Any]):
    def __init__(self) -> None:
        self.rows = np.arange(64.0)
        self.soft = torch.arange(64.0)
        self.scale = np.poly1d([1.0, 0.0])  # of an installed package, and open to changes
        self.place = ""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.001)
        value = torch.tensor(self.scale(self.rows[index]))
        return value, self.soft[index].clone(), torch.zeros(1), Path.cwd().name


def children() -> int:
    return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def change_package(dataset: Any) -> None:
    dataset.scale.c[0] = 3.0


def change_data(dataset: Any) -> None:
    dataset.soft.data[:] = 5.0


def change_type(dataset: Any) -> None:
    torch.set_default_dtype(torch.float64)


def change_folder(dataset: Any) -> None:
    os.chdir("/")


@pytest.mark.parametrize("change", [change_package, change_data, change_type, change_folder])
def test_what_changes_between_epochs_is_seen(
    change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def use() -> Any:
        os.chdir(tmp_path)
        torch.set_default_dtype(torch.float32)
        dataset = Table()
        loader = DataLoader(dataset, batch_size=4)
        seen = []
        for epoch in range(3):
            if epoch == 2:
                change(dataset)
            seen.append([[str(part) for part in batch] for batch in loader])
        return seen

    try:
        found = Compared(use)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.fixed == found.plain
    assert not found.failures
    assert found.delivered > 20, found.notes


def test_they_wait_for_two_loaders_and_end_with_the_fix() -> None:
    found = situation()
    undo = parallel_loading.apply(found)
    before = children()
    loaders = [DataLoader(Table(), batch_size=4) for _ in range(5)]
    for loader in loaders:
        for _ in range(2):
            assert len([*loader]) == 16
    assert len(parked._parked) == 2
    assert before < children() <= before + 2 * (os.cpu_count() or 1)
    del loader
    loaders.clear()
    assert children() == before
    loader = DataLoader(Table(), batch_size=4)
    for _ in range(2):
        assert len([*loader]) == 16
    assert children() > before
    undo()
    assert children() == before
    assert not found.failures


def test_pipes_of_the_script_are_closed_where_it_closes_them() -> None:
    undo = parallel_loading.apply(situation())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as program:
        loader = DataLoader(Table(), batch_size=4)
        for _ in range(2):
            assert len([*loader]) == 16
        assert parked._parked
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(timeout=10) == 0
    undo()
