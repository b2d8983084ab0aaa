"""Batches of workers come by a queue of ours, and are torch's own in all else."""

import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    get_worker_info,
)
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from slipstream.run.fix import Situation
from slipstream.run.fixes import fast_loader
from slipstream.run.loading.workers import SlotIterator

SIZE = 40


def situation(loaders: tuple[Any, ...] = ()) -> Situation:
    return Situation({}, SimpleNamespace(loaders=loaders, clock="host", calls=[]))


class Point(NamedTuple):
    x: torch.Tensor
    name: str


class Drawing(Dataset[Any]):
    """Draws from all generators, and tells who it is."""

    offset = 0

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None and info.dataset is self
        return {
            "x": torch.rand(3, 4) + index,
            "numbers": (random.random(), int(np.random.randint(1000)), np.random.randn(2)),
            "worker": (info.id, info.num_workers, info.seed),
            "point": Point(torch.full((2,), index), f"sample {index}"),
            "offset": self.offset,
        }


def shift(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.offset = 100 + worker + int(torch.randint(10, ()))


def collate(samples: list[Any]) -> Any:
    noise = torch.rand(2)
    return [s["x"] for s in samples], noise, {"names": [s["point"].name for s in samples]}


def flat(batch: Any) -> list[Any]:
    if isinstance(batch, dict):
        return [key for pair in batch.items() for key in (pair[0], *flat(pair[1]))]
    if isinstance(batch, (list, tuple)):
        return [type(batch).__name__, *(part for item in batch for part in flat(item))]
    if isinstance(batch, torch.Tensor):
        return [str(batch.dtype), tuple(batch.shape), batch.stride(), batch.numpy().tobytes()]
    if isinstance(batch, np.ndarray):
        return [batch.dtype, batch.shape, batch.tobytes()]
    return [batch]


def run(use: Callable[[], Any]) -> Any:
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    return use(), torch.rand(2).tolist(), random.random(), np.random.rand()


def check_equal(use: Callable[[], Any], *, says: str = "shared memory", never: str = "") -> Any:
    plain = run(use)
    found = situation()
    undo = fast_loader.apply(found)
    try:
        fixed = run(use)
    finally:
        undo()
    assert fixed == plain
    assert not found.failures
    said = " ".join(found.notes.get(fast_loader.NAME, []))
    assert says in said or not says
    assert never not in said or not never
    return fixed[0]


def epochs(make: Callable[[], DataLoader[Any]], count: int = 2) -> Callable[[], Any]:
    def use() -> Any:
        loader = make()
        return [[flat(batch) for batch in loader] for _ in range(count)]

    return use


class EagerSampler(Sampler[int]):
    """Draws when it is asked for an iterator, and with every sample."""

    def __iter__(self) -> Iterator[int]:
        first = int(torch.randint(SIZE, ()))
        return (int(torch.randint(SIZE, ())) * 0 + (first + k) % SIZE for k in range(20))

    def __len__(self) -> int:
        return 20


CASES: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("in order", lambda: {"batch_size": 4}),
    ("shuffled", lambda: {"batch_size": 4, "shuffle": True}),
    ("drop_last", lambda: {"batch_size": 7, "shuffle": True, "drop_last": True}),
    ("generator", lambda: {"batch_size": 4, "shuffle": True, "generator": torch.Generator()}),
    ("three workers", lambda: {"batch_size": 3, "num_workers": 3}),
    ("prefetch", lambda: {"batch_size": 3, "prefetch_factor": 5, "shuffle": True}),
    ("init", lambda: {"batch_size": 4, "worker_init_fn": shift, "shuffle": True}),
    ("persistent", lambda: {"batch_size": 4, "persistent_workers": True, "shuffle": True}),
    ("collate_fn", lambda: {"batch_size": 4, "collate_fn": collate}),
    ("no batches", lambda: {"batch_size": None, "shuffle": True}),
    ("sampler", lambda: {"batch_size": 4, "sampler": EagerSampler()}),
    ("batch_sampler", lambda: {"batch_sampler": BatchSampler(RandomSampler(range(30)), 4, True)}),
    ("pinned", lambda: {"batch_size": 4, "pin_memory": torch.accelerator.is_available()}),
    ("context", lambda: {"batch_size": 4, "multiprocessing_context": "fork"}),
    ("timeout", lambda: {"batch_size": 4, "timeout": 60}),
]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("arguments", [a for _, a in CASES], ids=[name for name, _ in CASES])
def test_batches_and_random_numbers_are_torchs(arguments: Callable[[], dict[str, Any]]) -> None:
    check_equal(epochs(lambda: DataLoader(Drawing(), **{"num_workers": 2, **arguments()})))


def test_the_loop_may_draw_between_the_iterator_and_its_first_batch() -> None:
    def use() -> Any:
        iterator = iter(DataLoader(Drawing(), batch_size=4, shuffle=True, num_workers=2))
        drawn = torch.rand(2).tolist()
        return drawn, [flat(batch) for batch in iterator]

    check_equal(use)


def test_loops_inside_loops() -> None:
    def use() -> Any:
        train = DataLoader(Drawing(), batch_size=8, shuffle=True, num_workers=2)
        test = DataLoader(Drawing(), batch_size=20, num_workers=1)
        seen = []
        for batch in train:
            seen.append((flat(batch), torch.rand(1).item()))
            seen += [flat(other) for other in test]
        return seen

    check_equal(use)


def test_batches_that_are_kept_stay_what_they_were() -> None:
    def use() -> Any:
        loader = DataLoader(Drawing(), batch_size=2, num_workers=2)
        return [flat(batch) for batch in [batch for _ in range(2) for batch in loader]]

    check_equal(use)


class Wide(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        size = 1 + (index * 7919) % 50_000
        return torch.full((size,), index), "long " * 20_000


def first(samples: list[Any]) -> Any:
    return samples[0]


def test_batches_of_all_sizes() -> None:
    check_equal(epochs(lambda: DataLoader(Wide(), 1, num_workers=2, collate_fn=first)))


class Odd(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return [
            torch.rand(4, 6).t(), torch.rand(2, 3)[:, ::2], torch.empty(0, 3), torch.tensor(index),
            torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last), np.array(["a", "b"]),
            torch.rand(3, requires_grad=True).detach(), {"a": {1, 2}}, None, b"bytes", 1 + 2j,
        ]  # fmt: skip


def test_tensors_of_all_kinds() -> None:
    check_equal(epochs(lambda: DataLoader(Odd(), batch_size=None, num_workers=2)))


class Bad(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise KeyError("sample five")
        return torch.tensor(index)


def test_errors_are_torchs_and_the_loop_goes_on() -> None:
    def use() -> Any:
        iterator = iter(DataLoader(Bad(), batch_size=2, num_workers=2))
        seen: list[Any] = []
        while True:
            try:
                seen.append(flat(next(iterator)))
            except StopIteration:
                return seen
            except KeyError as error:
                seen.append(str(error))

    seen = check_equal(use)
    assert "Caught KeyError in DataLoader worker process 0" in seen[2]


def test_a_worker_that_dies_is_told_of() -> None:
    class Dying(Bad):
        def __getitem__(self, index: int) -> Any:
            if index == 8:
                os._exit(4)
            return torch.tensor(index)

    found = situation()
    undo = fast_loader.apply(found)
    try:
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            list(DataLoader(Dying(), batch_size=2, num_workers=2))
    finally:
        undo()


def test_an_early_end_leaves_nothing_behind() -> None:
    def descriptors() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    found = situation()
    undo = fast_loader.apply(found)
    list(DataLoader(Drawing(), batch_size=2, num_workers=1))
    before = descriptors()
    try:
        for _ in range(3):
            next(iter(DataLoader(Drawing(), batch_size=2, num_workers=2)))
        loader = DataLoader(Drawing(), batch_size=2, num_workers=2, persistent_workers=True)
        list(loader)
        del loader
    finally:
        undo()
    gc.collect()
    deadline = time.monotonic() + 10
    while descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descriptors() <= before


def test_the_memory_of_batches_is_used_again() -> None:
    found = situation()
    undo = fast_loader.apply(found)
    try:
        places = [batch.data_ptr() for batch in DataLoader(Large(), 1, num_workers=1)]
        assert len(set(places)) < len(places) / 2
    finally:
        undo()


class Large(Dataset[Any]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return torch.full((100, 100), index)


def test_a_training_ends_with_the_same_weights() -> None:
    def use() -> Any:
        loader = DataLoader(Drawing(), batch_size=4, shuffle=True, num_workers=2)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.Adam(model.parameters())
        losses = []
        for _ in range(2):
            for batch in loader:
                loss = model(batch["x"] / 40).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses, [p.tolist() for p in model.parameters()]

    check_equal(use)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Stream(), batch_size=2, num_workers=1),
        lambda: DataLoader(Bad(), 2, num_workers=1, multiprocessing_context="spawn"),
    ],
    ids=["iterable", "spawn"],
)
def test_others_are_left_alone(make: Callable[[], DataLoader[Any]]) -> None:
    found = situation()
    undo = fast_loader.apply(found)
    try:
        assert type(iter(make())) is _MultiProcessingDataLoaderIter
    finally:
        undo()
    assert not found.notes


def test_subclasses_and_their_iterators_stay_what_they_are() -> None:
    class Own(DataLoader[Any]):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                yield "mine", batch

    check_equal(epochs(lambda: Own(Drawing(), batch_size=4, num_workers=2)))
    found = situation()
    undo = fast_loader.apply(found)
    try:
        iterator = iter(DataLoader(Drawing(), batch_size=4, num_workers=2))
        assert isinstance(iterator, SlotIterator | _MultiProcessingDataLoaderIter)
        assert len(iterator) == 10
    finally:
        undo()
    assert type(iter(DataLoader(Bad(), num_workers=1))) is _MultiProcessingDataLoaderIter


class Cv2Threads(Bad):
    def __getitem__(self, index: int) -> Any:
        return sys.modules["cv2"].getNumThreads()


def test_opencv_has_one_thread_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [8]
    module = SimpleNamespace(
        setNumThreads=lambda count: threads.__setitem__(0, count), getNumThreads=lambda: threads[0]
    )
    monkeypatch.setitem(sys.modules, "cv2", module)
    found = situation()
    undo = fast_loader.apply(found)
    try:
        batches = list(DataLoader(Cv2Threads(), batch_size=6, num_workers=1))
    finally:
        undo()
    assert [batch.tolist() for batch in batches] == [[1] * 6] * 2
    assert threads == [8]


def test_it_is_for_datasets_read_by_number() -> None:
    def loader(**facts: Any) -> Any:
        values = {"workers": 2, "kind": "map", "dataset": "Slow", "collate": "default_collate"}
        return SimpleNamespace(**{**values, **facts})

    assert fast_loader.applies(situation((loader(),)))[0]
    assert fast_loader.applies(situation((loader(workers=0),)))[0]
    assert not fast_loader.applies(situation((loader(workers=0, collate="mine"),)))[0]
    assert not fast_loader.applies(situation((loader(kind="iterable"),)))[0]
    assert not fast_loader.applies(situation())[0]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), TypeError("a bug")])
def test_where_it_fails_torch_begins_as_if_nothing_had_been_drawn(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> Any:
        loader = DataLoader(Drawing(), batch_size=4, shuffle=True, num_workers=1)
        return [flat(batch) for batch in loader]

    plain = run(use)

    def fail(*_: Any) -> Any:
        torch.rand(5)
        raise error

    monkeypatch.setattr(fast_loader, "begin", fail)
    found = situation()
    undo = fast_loader.apply(found)
    try:
        assert run(use) == plain
    finally:
        undo()
    assert str(error) in found.failures[fast_loader.NAME]


def test_an_error_of_the_script_is_not_blamed_on_the_fix() -> None:
    class Broken(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            raise ValueError("no samples today")

        def __len__(self) -> int:
            return 20

    found = situation()
    undo = fast_loader.apply(found)
    try:
        with pytest.raises(ValueError, match="today"):
            iter(DataLoader(Drawing(), sampler=Broken(), num_workers=1))
    finally:
        undo()
    assert not found.failures
