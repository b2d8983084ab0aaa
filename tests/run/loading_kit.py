"""What the tests of batches made ahead share: a dataset, and a loop without the fix and with it."""

import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from slipstream.run.fix import Situation
from slipstream.run.fixes import parallel_loading
from slipstream.run.loading import ahead, knowledge, scout, single, staffing
from slipstream.run.loading.knowledge import Knowledge

SIZE = 90


class Slow(Dataset[Any]):
    """Draws from the generators named; takes some time."""

    def __init__(self, draws: str = "", seconds: float = 0.0005) -> None:
        self.draws = draws
        self.seconds = seconds

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        assert get_worker_info() is None
        time.sleep(self.seconds)
        drawn = 0.0
        if "torch" in self.draws:
            drawn += torch.rand(1).item()
        if "python" in self.draws:
            drawn += random.random()
        if "numpy" in self.draws:
            drawn += np.random.randn()
        return {"x": torch.arange(8.0) * index + drawn, "index": index, "name": f"sample {index}"}


def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_LOOKED_AT", 3)
    monkeypatch.setattr(ahead, "_LEAST_LEFT_S", 0.0)
    monkeypatch.setattr(ahead, "_LEAST_LEFT_AGAIN_S", 0.0)
    monkeypatch.setattr(ahead, "LEAST_BATCH_S", 0.0)
    monkeypatch.setattr(ahead, "_WATCH_SHARE", 1e9)
    monkeypatch.setattr(knowledge, "_GAIN", 1e9)


def always_scouted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with many cores: one process draws, and others make batches."""
    monkeypatch.setattr(staffing, "usable_cores", lambda: 4)
    monkeypatch.setattr(scout, "_MOST_SHARE", 1e9)
    monkeypatch.setattr(staffing.Staffing, "wanted", 3)


def situation(loaders: tuple[Any, ...] = (), spans: Any = ()) -> Situation:
    capture = SimpleNamespace(loaders=loaders, clock="host", calls=[], spans=spans)
    return Situation({}, capture)


def flat(batch: Any) -> list[Any]:
    if isinstance(batch, dict):
        return [key for pair in batch.items() for key in (pair[0], *flat(pair[1]))]
    if isinstance(batch, (list, tuple)):
        return [type(batch).__name__, *(part for item in batch for part in flat(item))]
    if isinstance(batch, torch.Tensor):
        return [str(batch.dtype), tuple(batch.shape), batch.stride(), batch.numpy().tobytes()]
    return [batch]


def states() -> tuple[Any, ...]:
    return torch.rand(3).tolist(), random.random(), np.random.randn(3).tolist()


def _noted(known: list[Knowledge], one: Knowledge) -> Knowledge:
    known.append(one)
    return one


class Compared:
    """What a loop sees without the fix, and with it."""

    def __init__(self, use: Callable[[], Any]) -> None:
        self.plain = self._run(use)
        found = situation()
        undo = parallel_loading.apply(found)
        known: list[Knowledge] = []
        self.known = known
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(single, "Knowledge", lambda roots: _noted(known, Knowledge(roots)))
            self.fixed = self._run(use)
        undo()
        self.delivered = sum(one.delivered for one in known)
        self.notes = " ".join(found.notes.get(parallel_loading.NAME, []))
        self.failures = found.failures

    def _run(self, use: Callable[[], Any]) -> Any:
        torch.manual_seed(1)
        random.seed(2)
        np.random.seed(3)
        return use(), states()


def check_equal(use: Callable[[], Any], *, at_least: int) -> Compared:
    for _ in range(3):  # on a busy machine the other process may come too late to deliver much
        compared = Compared(use)
        assert compared.fixed == compared.plain
        assert not compared.failures
        if compared.delivered >= at_least:
            break
    assert compared.delivered >= at_least, compared.notes
    return compared


def check_left_alone(use: Callable[[], Any], why: str) -> None:
    compared = Compared(use)
    assert compared.fixed == compared.plain
    assert not compared.failures
    assert compared.delivered == 0
    assert why in compared.notes


def patient(_: Any = None) -> None:
    """As long as a step takes; those who work ahead need some time, too."""
    time.sleep(0.002)


def epochs(
    make: Callable[[], DataLoader[Any]], count: int = 2, step: Callable[[Any], Any] = patient
) -> Callable[[], Any]:
    def use() -> Any:
        loader = make()
        return [[(flat(batch), step(batch)) for batch in loader] for _ in range(count)]

    return use
