"""`added-workers`: more workers, and the script's own where it would show."""

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler, get_worker_info

from slipstream.doctor.capture import Capture
from slipstream.run.fix import Situation
from slipstream.run.fixes import added_workers, fast_loader, more_workers
from slipstream.run.loading.recorded import Recorded

GIVEN, WANTED, BATCHES = 2, 5, 12


class Samples(Dataset[Any]):
    """`extra` makes a sample of some number more than its number."""

    def __init__(self, extra: Callable[[Any, int], Any] | None = None, first: int = 0) -> None:
        self.extra, self.first = extra, first
        self.count = 0
        self.table = torch.arange(4.0)

    def __len__(self) -> int:
        return 4 * BATCHES

    def __getitem__(self, index: int) -> Any:
        more = 0.0
        if self.extra is not None and index >= self.first:
            more = self.extra(self, index)
        return torch.tensor([float(index), more]), index


def seen_in(dataset: Dataset[Any], **settings: Any) -> list[Any]:
    """Two passes by one loader, with draws of the loop in between, and one by another."""
    torch.manual_seed(5)
    random.seed(6)
    found = []
    settings = {"batch_size": 4, "shuffle": True, "num_workers": GIVEN} | settings
    loader = DataLoader(dataset, **settings)
    for _ in range(2):
        for x, _ in loader:
            found.append(x.clone())
            found.append(torch.rand(1))
    for x, _ in DataLoader(dataset, **settings):
        found.append(x.clone())
        if len(found) % 7 == 0:
            break
    found.append(torch.rand(2))
    return found


@pytest.fixture(params=["torch's queue", "fast-loader"])
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Situation]:
    """With the fix in place, for loaders as those here."""
    seen = type("Seen", (), {"workers": GIVEN, "dataset": "Samples"})
    monkeypatch.setattr(more_workers, "wanted", lambda situation: (seen, WANTED))
    found = Situation({}, Capture("train.py", {}, ""))
    undo = [fast_loader.apply(found)] if request.param == "fast-loader" else []
    undo.append(added_workers.apply(found))
    yield found
    for each in reversed(undo):
        each()


def expect_the_same(known: Situation, dataset: Callable[[], Any], **settings: Any) -> list[str]:
    fixed = seen_in(dataset(), **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(more_workers, "is_like", lambda *_: False)
        right = seen_in(dataset(), **settings)
    assert len(fixed) == len(right)
    assert all(map(torch.equal, fixed, right))
    assert known.failures == {}
    return known.notes["added-workers"]


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"persistent_workers": True}, {"shuffle": False, "drop_last": True},
        {"prefetch_factor": 1}, {"batch_size": None, "shuffle": False},
        {"generator": torch.Generator().manual_seed(3)},
    ],
    ids=repr,
)  # fmt: skip
def test_samples_that_draw_nothing_come_from_more_workers(
    known: Situation, settings: dict[str, Any]
) -> None:
    if "generator" in settings:
        settings["generator"].manual_seed(3)
        fixed = seen_in(Samples(), **settings)
        settings["generator"].manual_seed(3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(more_workers, "is_like", lambda *_: False)
            assert all(map(torch.equal, fixed, seen_in(Samples(), **settings)))
        return
    notes = expect_the_same(known, Samples, **settings)
    assert all("5 workers instead of 2, as samples draw nothing" in note for note in notes)
    assert not known.did_nothing("added-workers")


def _count(dataset: Any, index: int) -> float:
    dataset.count += 1
    return float(dataset.count)


def _write(dataset: Any, index: int) -> float:
    dataset.table[0] += 1
    return float(dataset.table[0])


def _number(dataset: Any, index: int) -> float:
    info = get_worker_info()
    return float(info.id) if info is not None else -1.0


OWN = {
    "torch": lambda dataset, index: torch.rand(()).item(),
    "random": lambda dataset, index: random.random(),
    "numpy": lambda dataset, index: np.random.rand(),
    "count": _count,
    "write": _write,
    "number": _number,
    "seed": lambda dataset, index: float(torch.initial_seed() % 1000),
}


@pytest.mark.parametrize("first", [0, 30, 4 * BATCHES - 1])
@pytest.mark.parametrize("extra", OWN)
def test_what_a_sample_has_of_its_worker_is_that_of_the_scripts_own(
    known: Situation, extra: str, first: int
) -> None:
    notes = expect_the_same(known, lambda: Samples(OWN[extra], first))
    assert any("left alone" in note for note in notes)


@pytest.mark.parametrize("extra", ["torch", "count"])
def test_workers_that_persist_are_the_scripts_own_from_then_on(
    known: Situation, extra: str
) -> None:
    notes = expect_the_same(known, lambda: Samples(OWN[extra], 30), persistent_workers=True)
    assert any("left alone" in note for note in notes)


def test_an_error_is_that_of_the_scripts_own_worker(known: Situation) -> None:
    def fail(dataset: Any, index: int) -> float:
        raise ValueError(f"no sample {index}")

    loader = DataLoader(Samples(fail, 13), 4, num_workers=GIVEN)
    found = []
    with pytest.raises(ValueError, match=r"in DataLoader worker process 1\.(.|\n)*no sample 13"):
        for _, y in loader:
            found.append(y)
    assert len(found) == 3
    assert known.failures == {}


class _Drawing(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        for _ in range(4 * BATCHES):
            yield int(torch.randint(4 * BATCHES, ()))

    def __len__(self) -> int:
        return 4 * BATCHES


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"worker_init_fn": print}, "workers are told their numbers"),
        ({"sampler": _Drawing(), "shuffle": False}, "its sampler may draw with the loop"),
        ({"multiprocessing_context": "spawn"}, "its workers are not forked"),
        ({"in_order": False}, "in the order in which they are ready"),
    ],
)
def test_loaders_that_are_left_alone(known: Situation, settings: dict[str, Any], why: str) -> None:
    loader = DataLoader(Samples(), **({"batch_size": 4, "num_workers": GIVEN} | settings))
    iterator: Any = iter(loader)
    assert iterator._num_workers == GIVEN
    assert why in known.notes["added-workers"][0]
    assert known.did_nothing("added-workers")
    del iterator


def test_a_dataset_with_a_generator_is_left_alone(known: Situation) -> None:
    dataset = Samples()
    dataset.own = random.Random(3)  # type: ignore[attr-defined]
    iterator: Any = iter(DataLoader(dataset, 4, num_workers=GIVEN))
    assert iterator._num_workers == GIVEN
    assert "random generator of its own" in known.notes["added-workers"][0]


def test_a_place_is_not_tried_again(known: Situation) -> None:
    counts = []
    for _ in range(3):
        iterator: Any = iter(DataLoader(Samples(OWN["torch"]), 4, num_workers=GIVEN))
        counts.append(iterator._num_workers)
        next(iterator)
        del iterator
    assert counts == [WANTED, GIVEN, GIVEN]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("extra", [None, OWN["torch"]])
def test_nobody_stays_behind(known: Situation, persistent: bool, extra: Any) -> None:
    loader = DataLoader(Samples(extra), 4, num_workers=GIVEN, persistent_workers=persistent)
    iterator: Any = iter(loader)
    workers = [*iterator._workers]
    next(iterator)
    if iterator._guard.replacement is not None:
        workers += iterator._guard.replacement._workers
    assert len(workers) == WANTED + (GIVEN if extra else 0)
    gone = weakref.ref(loader)
    del loader, iterator
    if persistent:
        gc.collect()  # torch's own loader and iterator know each other, too
    assert gone() is None
    assert not any(worker.is_alive() for worker in workers)


def test_a_recorded_sampler_is_begun_when_the_original_is() -> None:
    torch.manual_seed(1)
    original = RandomSampler(range(9))
    own = list(original)
    torch.manual_seed(1)
    record = iter(Recorded(original))
    taken = [next(record) for _ in range(5)]
    record.delivered()
    record.delivered()
    assert [*taken[:2], *record.rest()] == own
    assert record.count == 2
    assert len(Recorded(original)) == 9
