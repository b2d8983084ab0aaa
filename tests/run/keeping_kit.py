"""Passes over a loader with and without `fast-loader`, and who its workers are."""

import os
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from slipstream.run.fix import Situation
from slipstream.run.fixes import fast_loader

Use = Callable[[], Any]


def shown(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [shown(part) for part in batch]


class Drawing(Dataset[Any]):
    """Draws from all generators. The process is told apart from what is compared."""

    epoch = 0

    def __init__(self) -> None:
        self.weights = torch.ones(3)
        self.count = 0

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None and info.dataset is self
        numbers = random.random(), random.gauss(0, 1), float(np.random.randn())
        return torch.rand(3), numbers, info.seed, self.epoch, os.getpid()


def passes(loader: DataLoader[Any], between: Callable[[int], None] = lambda epoch: None) -> Any:
    """What is to be equal, and the workers of each epoch."""
    seen, pids = [], []
    for epoch in range(3):
        batches = list(loader)
        seen.append([shown(batch[:-1]) for batch in batches])
        seen.append([torch.rand(()).item()])
        pids.append({int(pid) for batch in batches for pid in batch[-1]})
        between(epoch)
    return seen, pids


def with_fix(use: Use) -> tuple[Any, Situation]:
    situation = Situation({}, SimpleNamespace(loaders=[], clock="host", calls=[]))
    undo = fast_loader.apply(situation)
    try:
        return use(), situation
    finally:
        undo()


def compare(use: Use) -> tuple[list[set[int]], Situation]:
    """The workers of each epoch with the fix; all else is as without."""

    def seeded() -> Any:
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        return use()

    plain, plain_pids = seeded()
    (seen, pids), situation = with_fix(seeded)
    assert seen == plain
    assert len({frozenset(epoch) for epoch in plain_pids}) == 3
    assert situation.failures == {}
    return pids, situation


def loader_of(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **{"batch_size": 2, "shuffle": True, "num_workers": 2, **options})
