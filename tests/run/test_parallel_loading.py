"""Batches made ahead are torch's own, and so is all that the generators give afterwards."""

import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from slipstream.doctor.capture import Span
from slipstream.run.fixes import parallel_loading
from slipstream.run.loading import ahead, knowledge
from slipstream.run.loading.knowledge import Knowledge
from tests.run.loading_kit import (
    SIZE,
    Compared,
    Slow,
    check_equal,
    check_left_alone,
    epochs,
    flat,
    patient,
    situation,
)

pytestmark = pytest.mark.usefixtures("alone_or_scouted")


DRAWS = ["", "torch", "python", "numpy", "torch python numpy"]


@pytest.mark.parametrize("draws", DRAWS)
def test_shuffled_batches_and_all_random_numbers_are_torchs(draws: str) -> None:
    check_equal(epochs(lambda: DataLoader(Slow(draws), batch_size=4, shuffle=True), 3), at_least=20)


@pytest.mark.parametrize("draws", ["", "python numpy"])
def test_a_loop_that_draws_from_other_generators_disturbs_nothing(draws: str) -> None:
    def step(batch: Any) -> Any:
        patient()
        return torch.nn.functional.dropout(batch["x"], 0.5).tolist()

    check_equal(
        epochs(lambda: DataLoader(Slow(draws), batch_size=4, shuffle=True), 2, step), at_least=20
    )


def test_a_loop_that_draws_from_the_same_generator_is_left_alone() -> None:
    def step(batch: Any) -> Any:
        patient()
        return torch.nn.functional.dropout(batch["x"], 0.5).tolist()

    check_left_alone(
        epochs(lambda: DataLoader(Slow("torch"), batch_size=4, shuffle=True), 2, step),
        "the loop draws from the generators",
    )


def test_a_loop_that_draws_now_and_then_is_followed() -> None:
    def step(batch: Any) -> Any:
        patient()
        return torch.rand(2).tolist() if int(batch["index"][0]) % 10 == 0 else None

    check_equal(epochs(lambda: DataLoader(Slow("torch"), batch_size=2), 2, step), at_least=10)


SAMPLERS: list[tuple[str, dict[str, Any]]] = [
    ("in order", {"batch_size": 4}),
    ("drop_last", {"batch_size": 4, "shuffle": True, "drop_last": True}),
    ("even", {"batch_size": 5, "shuffle": True}),
    ("even, drop_last", {"batch_size": 5, "shuffle": True, "drop_last": True}),
    ("subset", {"batch_size": 4, "sampler": lambda: SubsetRandomSampler(range(0, 80, 2))}),
    ("weights", {"batch_size": 4, "sampler": lambda: WeightedRandomSampler([1.0] * 60, 70)}),
    ("again", {"batch_size": 4, "sampler": lambda: RandomSampler(range(60), replacement=True)}),
    ("list", {"batch_size": 4, "sampler": lambda: list(range(60, 0, -1))}),
    ("batches", {"batch_sampler": lambda: [[k, k + 1] for k in range(40)]}),
    ("single", {"batch_size": None, "shuffle": True}),
]


@pytest.mark.parametrize("arguments", [a for _, a in SAMPLERS], ids=[n for n, _ in SAMPLERS])
@pytest.mark.parametrize("draws", ["", "torch"])
def test_samplers(arguments: dict[str, Any], draws: str) -> None:
    def make() -> DataLoader[Any]:
        given = {key: value() if callable(value) else value for key, value in arguments.items()}
        return DataLoader(Slow(draws), **given)

    check_equal(epochs(make), at_least=8)


@pytest.mark.parametrize("batch_size", [4, 5])
def test_a_generator_of_the_script_is_drawn_from_at_the_same_moments(batch_size: int) -> None:
    def use() -> Any:
        generator = torch.Generator().manual_seed(5)
        loader = DataLoader(Slow(), batch_size=batch_size, shuffle=True, generator=generator)
        return [
            (flat(batch), patient(), torch.rand(1, generator=generator).item())
            for _ in range(2)
            for batch in loader
        ]

    check_equal(use, at_least=10)


class DrawingSampler(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        for _ in range(40):
            yield int(torch.randint(SIZE, ()))

    def __len__(self) -> int:
        return 40


def test_a_sampler_that_draws_with_every_sample_is_left_alone() -> None:
    check_left_alone(
        epochs(lambda: DataLoader(Slow(), batch_size=2, sampler=DrawingSampler())),
        "DrawingSampler may draw",
    )


def collate(samples: list[Any]) -> Any:
    return [sample["x"] + 1 for sample in samples], torch.tensor([s["index"] for s in samples])


def test_collate_fn() -> None:
    check_equal(
        epochs(lambda: DataLoader(Slow("torch"), batch_size=4, collate_fn=collate)), at_least=10
    )


class Many(Slow):
    def __getitems__(self, indices: list[int]) -> Any:
        return [(self[index]["x"], -index) for index in indices]


def test_samples_that_come_together() -> None:
    check_equal(epochs(lambda: DataLoader(Many("numpy"), batch_size=4)), at_least=10)


def test_two_loaders_one_inside_the_other() -> None:
    def use() -> Any:
        train = DataLoader(Slow("torch"), batch_size=4, shuffle=True)
        test = DataLoader(Slow("", 0.0003), batch_size=8)
        seen = []
        for _ in range(2):
            for number, batch in enumerate(train):
                patient()
                seen.append(flat(batch))
                if number % 10 == 9:
                    for other in test:
                        patient()
                        seen.append(flat(other))
        return seen

    check_equal(use, at_least=20)


def test_two_iterations_at_once() -> None:
    def use() -> Any:
        loader = DataLoader(Slow("python"), batch_size=4, shuffle=True)
        seen = []
        for one, other in zip(loader, loader, strict=True):
            patient()
            seen += [flat(one), flat(other)]
        return seen

    compared = Compared(use)
    assert compared.fixed == compared.plain


def test_an_early_end() -> None:
    def use() -> Any:
        loader = DataLoader(Slow("torch numpy"), batch_size=2, shuffle=True)
        seen = []
        for _ in range(4):
            for number, batch in enumerate(loader):
                patient()
                seen.append(flat(batch))
                if number == 15:
                    break
        return seen

    check_equal(use, at_least=10)


class Bad(Slow):
    def __getitem__(self, index: int) -> Any:
        if index in (30, 31, 70):
            raise KeyError(f"sample {index}")
        return super().__getitem__(index)


@pytest.mark.parametrize("draws", ["", "torch"])
def test_errors_come_where_torchs_come_and_the_loop_can_go_on(draws: str) -> None:
    def use() -> Any:
        iterator = iter(DataLoader(Bad(draws), batch_size=2))
        seen: list[Any] = []
        while True:
            patient()
            try:
                seen.append(flat(next(iterator)))
            except StopIteration:
                return seen
            except KeyError as error:
                seen.append(repr(error))

    compared = check_equal(use, at_least=20)
    assert "KeyError('sample 30')" in compared.fixed[0]


def test_an_interrupted_loop_can_go_on() -> None:
    class Interrupted(Slow):
        def __getitem__(self, index: int) -> Any:
            if index == 31:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    def use() -> Any:
        iterator = iter(DataLoader(Interrupted("torch"), batch_size=2))
        seen: list[Any] = []
        while True:
            patient()
            try:
                seen.append(flat(next(iterator)))
            except StopIteration:
                return seen
            except KeyboardInterrupt:
                seen.append("interrupted")

    compared = Compared(use)
    assert compared.fixed == compared.plain
    assert "interrupted" in compared.fixed[0]


def test_a_process_that_dies_is_replaced_by_the_loop() -> None:
    parent = os.getpid()

    class Dying(Slow):
        def __getitem__(self, index: int) -> Any:
            if index == 60 and os.getpid() != parent:
                os._exit(3)
            return super().__getitem__(index)

    compared = Compared(epochs(lambda: DataLoader(Dying(), batch_size=2), 1))
    assert compared.fixed == compared.plain
    assert compared.delivered > 5


class Counting(Slow):
    count = 0

    def __getitem__(self, index: int) -> Any:
        self.count += 1
        return {"count": self.count, **super().__getitem__(index)}


class Caching(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.cache:
            self.cache[index] = super().__getitem__(index)
        return self.cache[index]


class CachingInList(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.cache: list[Any] = [None] * 1000

    def __getitem__(self, index: int) -> Any:
        if self.cache[index] is None:
            self.cache[index] = super().__getitem__(index)
        return self.cache[index]


class OwnGenerator(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(3)

    def __getitem__(self, index: int) -> Any:
        return self.generator.random(), super().__getitem__(index)


_hidden: Iterator[int] = iter(range(1 << 30))


class Hidden(Slow):
    """Its state is where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.file = os.open(__file__, os.O_RDONLY)

    def __getitem__(self, index: int) -> Any:
        return os.read(self.file, 1), super().__getitem__(index)

    def __del__(self) -> None:
        os.close(self.file)


class Iterating(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = iter(range(1 << 30))

    def __getitem__(self, index: int) -> Any:
        return next(self.numbers), super().__getitem__(index)


class Printing(Slow):
    def __getitem__(self, index: int) -> Any:
        print("reading", index)
        return super().__getitem__(index)


_seen: list[int] = []


class Global(Slow):
    def __getitem__(self, index: int) -> Any:
        _seen.append(index)
        return super().__getitem__(index)


class Writing(Slow):
    def __getitem__(self, index: int) -> Any:
        with open(self.path, "a") as file:  # noqa: PTH123
            file.write(f"{index}\n")
        return super().__getitem__(index)

    path = ""


class Large(Slow):
    """The mean of so many depends on how many threads add them up."""

    def __getitem__(self, index: int) -> Any:
        return torch.linspace(0, index, 1 << 16).mean()


class Owned(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.arange(8.0 * SIZE).reshape(SIZE, 8)

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return self.rows[index]


LEFT_ALONE: list[tuple[Any, str]] = [
    (Counting, "samples change what the dataset holds"),
    (Caching, "samples change what the dataset holds"),
    (CachingInList, "samples change what the dataset holds"),
    (OwnGenerator, "random generator of its own"),
    (Hidden, "made again is another one"),
    (Iterating, "it holds an iterator"),
    (Printing, "prints or writes"),
    (Global, "samples change what the dataset holds"),
]


@pytest.mark.parametrize(("kind", "why"), LEFT_ALONE, ids=[k.__name__ for k, _ in LEFT_ALONE])
def test_datasets_with_a_state_are_left_alone(kind: Any, why: str) -> None:
    check_left_alone(epochs(lambda: DataLoader(kind(), batch_size=4, shuffle=True)), why)


def test_a_file_is_written_once_for_every_sample(tmp_path: Any) -> None:
    def use() -> Any:
        dataset = Writing()
        dataset.path = str(tmp_path / "log.txt")
        batches = [flat(batch) for batch in DataLoader(dataset, batch_size=4)]
        text = (tmp_path / "log.txt").read_text()
        (tmp_path / "log.txt").unlink()
        return batches, text

    check_left_alone(use, "does open")


@pytest.mark.skipif(torch.get_num_threads() == 1, reason="one thread rounds as one thread does")
def test_what_rounds_by_threads_is_left_alone() -> None:
    check_left_alone(epochs(lambda: DataLoader(Large(), batch_size=2)), "may round differently")


def test_a_batch_that_is_the_datasets_own_memory_is_left_alone() -> None:
    def use() -> Any:
        seen = []
        for number, batch in enumerate(DataLoader(Owned(), batch_size=2, collate_fn=list)):
            patient()
            if number > 10:
                batch[0].mul_(2)
            seen.append(flat(batch))
        return seen

    check_left_alone(use, "the dataset's own")


def test_what_the_loop_changes_in_the_dataset_is_seen_at_once() -> None:
    def use() -> Any:
        dataset = Slow()
        seen = []
        loader = DataLoader(dataset, batch_size=2)
        for epoch in range(2):
            for number, batch in enumerate(loader):
                patient()
                seen.append(flat(batch))
                if number in (20, 33):
                    dataset.draws = "python" if epoch else "torch"
        return seen

    check_equal(use, at_least=10)


def test_a_file_that_is_open_is_read_from_where_it_should_be(tmp_path: Any) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(np.arange(SIZE * 1000, dtype=np.int64).tobytes())

    class InFile(Slow):
        def __init__(self) -> None:
            super().__init__()
            self.file = path.open("rb")

        def __getitem__(self, index: int) -> Any:
            self.file.seek(index * 8000)
            time.sleep(self.seconds)
            return np.frombuffer(self.file.read(8000), dtype=np.int64).copy()

    def use() -> Any:
        dataset = InFile()
        seen = epochs(lambda: DataLoader(dataset, batch_size=2, shuffle=True), 3)()
        dataset.file.close()
        return seen

    check_equal(use, at_least=20)


def test_a_training_ends_with_the_same_weights() -> None:
    def use() -> Any:
        loader = DataLoader(Slow("python"), batch_size=4, shuffle=True)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.Adam(model.parameters())
        losses = []
        for _ in range(2):
            for batch in loader:
                loss = model(batch["x"] / 1000).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                patient()
        return losses, [p.tolist() for p in model.parameters()]

    check_equal(use, at_least=20)


def test_batches_that_are_kept_stay_what_they_were() -> None:
    def use() -> Any:
        kept = []
        for batch in DataLoader(Slow("torch"), batch_size=2):
            patient()
            kept.append(batch)
        return [flat(batch) for batch in kept]

    check_equal(use, at_least=20)


def test_nothing_is_left_behind() -> None:
    def children() -> list[str]:
        return [path.name for path in Path("/proc").iterdir() if _is_ours(path.name)]

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def use() -> Any:
        loader = DataLoader(Slow(), batch_size=2)
        for number, _ in enumerate(loader):
            patient()
            if number == 20:
                break
        return [flat(batch) for batch in loader]

    gc.collect()
    before = descriptors(), len(children())
    check_equal(use, at_least=20)
    gc.collect()
    assert (descriptors(), len(children())) == before


def _is_ours(pid: str) -> bool:
    try:
        stat = Path("/proc", pid, "stat").read_text()
        return int(stat.rpartition(")")[2].split()[1]) == os.getpid()
    except (OSError, IndexError):
        return False


def test_batches_are_made_here_as_well_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_SPOT_CHECKS", {2, 5, 9})
    check_equal(epochs(lambda: DataLoader(Slow("torch"), batch_size=2)), at_least=10)
    array = np.zeros(1 << 22)  # too large to be watched, but for some values

    class Array(Slow):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index), array[1]

    def use() -> Any:
        array[1] = 0
        seen = []
        for number, batch in enumerate(DataLoader(Array(), batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number >= 6:
                array[1] += 1
        return len(seen)

    with pytest.warns(UserWarning, match="not what it should have been"):
        compared = Compared(use)
    assert compared.failures


LEVEL = 0


class Leveled(Slow):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index), globals()["level".upper()]


@pytest.mark.parametrize("draws", ["", "torch"])
def test_a_change_between_epochs_that_nobody_sees_is_noticed_by_the_first_batch(
    draws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "_LONG", 16)
    monkeypatch.setattr(sys.modules[__name__], "LEVEL", 0)

    def use() -> Any:
        globals()["LEVEL"] = 0
        loader = DataLoader(Leveled(draws), batch_size=2)
        seen = []
        for _ in range(3):
            for batch in loader:
                patient()
                seen.append(flat(batch))
            globals()["LEVEL"] += 1
        return seen

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compared = Compared(use)
    assert compared.fixed == compared.plain
    assert bool(compared.failures) is any("not what it should" in str(one.message) for one in said)
    assert compared.delivered >= 10


def test_a_process_that_the_script_forks_goes_on_by_itself() -> None:
    def use() -> Any:
        iterator = iter(DataLoader(Slow(), batch_size=2))
        seen = [flat(next(iterator)) for _ in range(12)]
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(writer, repr([flat(next(iterator)) for _ in range(3)]).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        seen.append(os.read(reader, 1 << 16).decode())
        os.close(reader)
        os.close(writer)
        return seen + [flat(batch) for batch in iterator]

    check_equal(use, at_least=10)


def test_processes_end_with_the_scripts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = done.stdout.split()
    assert pids
    deadline = time.monotonic() + 10
    while any(Path("/proc", pid).exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path("/proc", pid).exists() for pid in pids)


SCRIPT = """
import os, signal, time
from types import SimpleNamespace
from torch.utils.data import DataLoader, Dataset
from slipstream.doctor.capture import Span
from slipstream.run.fix import Situation
from slipstream.run.fixes import parallel_loading

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.005)
        return index

parallel_loading.apply(Situation({}, SimpleNamespace(loaders=[], clock="host", calls=[])))
iterator = iter(DataLoader(Slow()))
for _ in range(30):
    next(iterator)
print(*[child.pid for child in iterator._ahead._crew.children], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_cheap_samples_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LEAST_BATCH_S", 3e-3)
    check_left_alone(
        epochs(lambda: DataLoader(Slow(seconds=0.0), batch_size=2)), "too little to be worth it"
    )


def test_what_brings_nothing_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge, "_GAIN", 0.0)
    compared = Compared(epochs(lambda: DataLoader(Slow(), batch_size=2)))
    assert compared.fixed == compared.plain
    assert "did not come sooner" in compared.notes


@pytest.mark.parametrize("draws", ["", "torch numpy"])
def test_a_doubt_that_is_not_confirmed_lets_them_go_on(
    draws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Knowledge, "_is_sooner", lambda known, _: known.doubts > 0 or not known._periods_ahead
    )
    # Sixteen are judged, four are made here, and sixteen more are.
    compared = check_equal(epochs(lambda: DataLoader(Slow(draws=draws), batch_size=1)), at_least=32)
    assert [(known.doubts, known.pays) for known in compared.known] == [(1, True)]
    assert "made ahead by" in compared.notes


def test_a_failure_of_ours_is_not_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(ahead.Crew, "wait_for", broken)
    with pytest.warns(UserWarning, match="parallel-loading failed"):
        compared = Compared(epochs(lambda: DataLoader(Slow("torch"), batch_size=2)))
    assert compared.fixed == compared.plain


def test_iterables_are_torchs() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(10))

    found = situation()
    undo = parallel_loading.apply(found)
    try:
        iterator = iter(DataLoader(Stream(), batch_size=2))
        assert type(iterator) is torch.utils.data.dataloader._SingleProcessDataLoaderIter
    finally:
        undo()


def test_rows_in_memory_are_left_to_others() -> None:
    undo = parallel_loading.apply(situation())
    try:
        iterator = iter(DataLoader(TensorDataset(torch.rand(20, 2)), batch_size=4))
        assert type(iterator) is torch.utils.data.dataloader._SingleProcessDataLoaderIter
    finally:
        undo()


def test_it_is_for_loaders_without_workers_that_take_their_time() -> None:
    with_workers = SimpleNamespace(id=0, workers=2, kind="map", dataset="Slow")
    without = SimpleNamespace(id=1, workers=0, kind="map", dataset="Slow")
    spans = [Span("next", k * 10**9, k * 10**9 + 20_000_000, [1, 1, k]) for k in range(8)]
    assert not parallel_loading.applies(situation((with_workers,)))[0]
    assert parallel_loading.applies(situation((with_workers, without)))[0]
    assert parallel_loading.applies(situation((with_workers, without), spans))[0]
    quick = [Span("next", span.start, span.start + 400_000, span.detail) for span in spans]
    helps, why = parallel_loading.applies(situation((with_workers, without), quick))
    assert not helps and "0.4 ms" in why


@pytest.mark.parametrize(("step_ms", "clock", "is_taken"), [
    (90.0, "host", True), (110.0, "host", False), (110.0, "device", True),
])  # fmt: skip
def test_a_model_that_has_the_cores_keeps_them(step_ms: float, clock: str, is_taken: bool) -> None:
    loader = SimpleNamespace(id=1, workers=0, kind="map", dataset="Slow")
    spans = [Span("next", k * 10**9, k * 10**9 + 20_000_000, [1, 1, k]) for k in range(8)]
    known = situation((loader,), spans)
    known.capture.clock = clock
    known.report["step_ms"] = step_ms
    helps, why = parallel_loading.applies(known)
    assert helps is is_taken
    assert is_taken or why == "a batch takes 20.0 of 110 ms; the model has the cores"
