"""Batches made ahead are torch's own where the loop or the samples change what they are made from,
and where that goes unseen they are not made ahead.
"""

import array
import logging
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler

from slipstream.run.fixes import parallel_loading
from slipstream.run.loading import ahead
from slipstream.run.loading.long import Long
from slipstream.run.loading.watch import Watch
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


class Noting(Slow):
    """Notes some of its samples down, late."""

    def __init__(self, notes: Any, note: Callable[[Any, int], None]) -> None:
        super().__init__()
        self.notes = notes
        self.note = note

    def __getitem__(self, index: int) -> Any:
        if index in (40, 41, 60):
            self.note(self.notes, index)
        return super().__getitem__(index)


def append(notes: Any, index: int) -> None:
    notes.append(index)


def mark(notes: Any, index: int) -> None:
    notes[index] += 1


def mark_column(notes: Any, index: int) -> None:
    notes.at[index, "seen"] += 1


def shown(notes: Any) -> Any:
    if isinstance(notes, pd.DataFrame):
        return notes["seen"].tolist()
    return notes.numpy().tobytes() if isinstance(notes, torch.Tensor) else [*notes]


NOTES: list[tuple[str, Any, Any]] = [
    ("list", list, append),
    ("tensor", lambda: torch.zeros(1 << 15), mark),
    (
        "data of a tensor",
        lambda: torch.zeros(1 << 15),
        lambda notes, index: mark(notes.data, index),
    ),
    ("array.array", lambda: array.array("q", [0] * 100), mark),
    ("bytearray", lambda: bytearray(100), mark),
    ("pandas", lambda: pd.DataFrame({"seen": [0] * 1000, "name": ["a"] * 1000}), mark_column),
    ("long list", lambda: [0] * 1000, mark),
    ("array", lambda: np.zeros(1 << 15), mark),
]


@pytest.mark.parametrize(("make", "note"), [n[1:] for n in NOTES], ids=[n[0] for n in NOTES])
def test_what_samples_note_down_later_is_there_at_the_same_moments(make: Any, note: Any) -> None:
    def use() -> Any:
        dataset = Noting(make(), note)
        return [
            (flat(batch), patient(), shown(dataset.notes))
            for batch in DataLoader(dataset, batch_size=2)
        ]

    check_equal(use, at_least=10)


class Labelled(Slow):
    """Its labels lie somewhere."""

    def __init__(self, labels: Any, read: Callable[[Any, int], Any]) -> None:
        super().__init__()
        self.labels = labels
        self.read = read

    def __getitem__(self, index: int) -> Any:
        return self.read(self.labels, index), super().__getitem__(index)


def plain(labels: Any, index: int) -> Any:
    return labels[index]


def inner(labels: Any, index: int) -> Any:
    return labels[index]["label"]


def change(labels: Any, index: int) -> None:
    labels[index] += 1


def change_inner(labels: Any, index: int) -> None:
    labels[index]["label"] += 1


def read_row(labels: Any, index: int) -> Any:
    return int(labels["label"].iloc[index])


def change_frame(labels: Any, index: int) -> None:
    labels.loc[:, "label"] = labels["label"] + index


def change_name(labels: Any, index: int) -> None:
    labels.loc[index, "name"] = f"{index} changed"


def frame() -> Any:
    return pd.DataFrame({"label": [*range(1000)], "name": [f"{k}.jpg" for k in range(1000)]})


_memory = np.arange(1 << 15)


def change_memory(labels: Any, index: int) -> None:
    _memory[index] += 1


def on_memory() -> Any:
    _memory[:] = np.arange(1 << 15)
    return torch.from_numpy(_memory)


LABELS: list[tuple[str, Any, Any, Any]] = [
    ("tensor", lambda: torch.arange(1 << 15), plain, change),
    ("data of a tensor", lambda: torch.arange(1 << 15), plain, lambda t, i: change(t.data, i)),
    ("tensor on an array", on_memory, plain, change_memory),
    (
        "bfloat16",
        lambda: torch.zeros(4, 300, dtype=torch.bfloat16).T,
        lambda t, i: t[i].float(),
        lambda t, i: change(t.data, i),
    ),
    ("pandas", frame, read_row, change_frame),
    ("text of pandas", frame, lambda f, i: f["name"].iloc[i], change_name),
    ("list", lambda: [*range(1000)], plain, change),
    ("dict", lambda: dict(enumerate(range(1000))), plain, change),
    ("array", lambda: np.arange(1 << 15), plain, change),
    ("large array", lambda: np.zeros(1 << 22), plain, change),
    ("wide array", lambda: np.zeros((1 << 10, 1 << 12)), lambda a, i: a[i].copy(), change),
    ("list of dicts", lambda: [{"label": k} for k in range(1000)], inner, change_inner),
]


@pytest.mark.parametrize("is_quick", [False, True], ids=["all", "entries"])
@pytest.mark.parametrize("labels", [n[1:] for n in LABELS], ids=[n[0] for n in LABELS])
@pytest.mark.parametrize("is_subset", [False, True], ids=["whole", "subset"])
def test_what_the_loop_changes_in_something_long_is_seen_at_once(
    monkeypatch: pytest.MonkeyPatch, labels: Any, is_quick: bool, is_subset: bool
) -> None:
    make, read, change = labels
    if is_quick:
        # As if there were no time for all of it.
        monkeypatch.setattr(Long, "is_same", lambda _: True)
        monkeypatch.setattr(Watch, "is_same_throughout", Watch.is_same)

    def use() -> Any:
        dataset = Labelled(make(), read)
        order = [*range(SIZE - 1, -1, -1)]
        loader = DataLoader(Subset(dataset, order) if is_subset else dataset, batch_size=2)
        seen = []
        for number, batch in enumerate(loader):
            patient()
            seen.append(flat(batch))
            if number in (15, 30):
                for index in range(1, SIZE):
                    change(dataset.labels, index)
        return seen

    check_equal(use, at_least=10)


class Mixing(Labelled):
    """Reads the row before its own, too."""

    def __getitem__(self, index: int) -> Any:
        return self.read(self.labels, max(0, index - 3)), super().__getitem__(index)


@pytest.mark.parametrize("labels", [n[1:] for n in LABELS], ids=[n[0] for n in LABELS])
def test_what_the_loop_changes_in_rows_that_it_has_just_seen_is_seen_at_once(
    monkeypatch: pytest.MonkeyPatch, labels: Any
) -> None:
    make, read, change = labels
    monkeypatch.setattr(Watch, "is_same_throughout", Watch.is_same)

    def use() -> Any:
        dataset = Mixing(make(), read)
        seen = []
        for number, batch in enumerate(DataLoader(dataset, batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number in (15, 30):
                for index in (2 * number, 2 * number + 1):
                    change(dataset.labels, index)
        return seen

    check_equal(use, at_least=10)


@pytest.mark.parametrize("at", range(1, 7))
def test_what_the_loop_changes_while_others_are_started_is_seen(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(Watch, "is_same_throughout", Watch.is_same)

    def use() -> Any:
        dataset = Mixing(torch.arange(1 << 15), plain)
        seen = []
        for number, batch in enumerate(DataLoader(dataset, batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number == at:
                change(dataset.labels.data, 2 * number + 1)
        return seen

    check_equal(use, at_least=10)


class Neighbour(Labelled):
    """Reads what lies far from its own row."""

    def __getitem__(self, index: int) -> Any:
        return self.read(self.labels, (index + 500) % 1000), super().__getitem__(index)


def test_items_of_a_long_list_that_the_loop_changes_are_seen_wherever_they_lie() -> None:
    def use() -> Any:
        dataset = Neighbour([{"label": k} for k in range(1000)], inner)
        seen = []
        for number, batch in enumerate(DataLoader(dataset, batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number in (15, 30):
                for record in dataset.labels[500:]:
                    record["label"] += 1
        return seen

    check_equal(use, at_least=10)


COUNTS: list[tuple[str, Any, Any]] = [
    ("inside of a long list", lambda: [[0, 0] for _ in range(1000)], lambda c, i: mark(c[i], 1)),
    ("in a large array", lambda: np.zeros(3_000_000), mark),
]


class CountingAll(Noting):
    """Notes each of its samples down, far from its own row."""

    def __getitem__(self, index: int) -> Any:
        self.note(self.notes, (index + 500) % 1000)
        return super().__getitem__(index)


@pytest.mark.parametrize(("make", "count"), [c[1:] for c in COUNTS], ids=[c[0] for c in COUNTS])
def test_what_samples_count_far_from_their_own_row_is_there(make: Any, count: Any) -> None:
    def use() -> Any:
        dataset = CountingAll(make(), count)
        batches = [flat(batch) for batch in DataLoader(dataset, batch_size=2)]
        return batches, np.asarray(dataset.notes).sum()

    check_equal(use, at_least=0)


class Ordinary(Slow):
    """Holds what datasets of pictures and of rows hold."""

    def __init__(self) -> None:
        super().__init__(seconds=0.004)
        self.samples = [(f"/data/{k % 10}/{k}.jpg", k % 10) for k in range(100_000)]
        self.records = [{"path": Path(f"{k}.jpg"), "boxes": [[1, 2, 3]]} for k in range(1000)]
        self.classes = {f"class {k}": k for k in range(1000)}
        self.data = np.zeros((1000, 32, 32, 3), dtype=np.uint8)
        self.targets = [k % 10 for k in range(50_000)]

    def __getitem__(self, index: int) -> Any:
        path, target = self.samples[index]
        record = self.records[index]
        return {
            **super().__getitem__(index), "path": path, "target": target + self.targets[index],
            "boxes": record["boxes"][0][0], "picture": self.data[index],
        }  # fmt: skip


def test_ordinary_datasets_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_WATCH_SHARE", 0.03)
    check_equal(epochs(lambda: DataLoader(Ordinary(), batch_size=4, shuffle=True)), at_least=20)


class Records(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.records = [{"index": k} for k in range(SIZE)]

    def __getitem__(self, index: int) -> Any:
        super().__getitem__(index)
        return self.records[index]


def test_objects_of_the_dataset_are_the_loops_to_change() -> None:
    def use() -> Any:
        dataset = Records()
        for number, batch in enumerate(DataLoader(dataset, batch_size=2, collate_fn=list)):
            patient()
            for record in batch if number > 15 else []:
                record["number"] = number
        return dataset.records

    check_left_alone(use, "its objects are the dataset's own")


def test_objects_that_nobody_can_change_may_be_the_datasets() -> None:
    class Paths(Slow):
        def __init__(self) -> None:
            super().__init__()
            self.paths = [Path(f"folder/{k}") for k in range(SIZE)]
            self.pairs = [(k, f"name {k}") for k in range(SIZE)]

        def __getitem__(self, index: int) -> Any:
            return [self.paths[index], self.pairs[index], {**super().__getitem__(index)}]

    check_equal(epochs(lambda: DataLoader(Paths(), batch_size=2, collate_fn=list)), at_least=10)


_here: Any = logging.getLogger("tests.rarely")  # where nobody looks
_here.made = []
_parent = os.getpid()


class Rarely(Slow):
    """Adds up many numbers, now and then."""

    def __getitem__(self, index: int) -> Any:
        if os.getpid() == _parent:
            _here.made.append(index)
        found = super().__getitem__(index)
        if index == 60:
            found["x"] = found["x"] + torch.linspace(0, index, 1 << 16).mean()
        return found


@pytest.mark.skipif(torch.get_num_threads() == 1, reason="one thread rounds as one thread does")
def test_a_batch_that_rounds_by_threads_is_made_by_the_loop() -> None:
    _here.made.clear()
    check_equal(epochs(lambda: DataLoader(Rarely(), batch_size=2), 1), at_least=10)
    made = [*_here.made]
    assert made.count(60) == 2  # without the fix, and with it
    assert 1 in {made.count(index) for index in range(SIZE)}


def turn(items: list[Any], start: int) -> None:
    items[start:] = items[start:][::-1]


def test_a_list_of_indices_that_the_script_changes_is_followed() -> None:
    def use() -> Any:
        order = [*range(80)]
        seen = []
        for number, batch in enumerate(DataLoader(Slow(), batch_size=2, sampler=order)):
            patient()
            seen.append(flat(batch))
            if number in (14, 26):
                turn(order, 2 * number + 2)
        return seen

    check_equal(use, at_least=8)


def test_batches_that_the_script_changes_are_followed() -> None:
    def use() -> Any:
        batches = [[k, k + 1] for k in range(40)]
        seen = []
        for number, batch in enumerate(DataLoader(Slow(), batch_sampler=batches)):
            patient()
            seen.append(flat(batch))
            if number == 14:
                turn(batches, 15)
            if number == 26:
                for later in batches[27:]:
                    later.append(later.pop(0))
        return seen

    check_equal(use, at_least=8)


def test_indices_of_a_sampler_that_the_script_changes_are_followed() -> None:
    def use() -> Any:
        sampler = SubsetRandomSampler([*range(80)])
        seen = []
        for number, batch in enumerate(DataLoader(Slow(), batch_size=2, sampler=sampler)):
            patient()
            seen.append(flat(batch))
            if number in (14, 26):
                turn(sampler.indices, 0 if number == 14 else 1)  # type: ignore[arg-type]
        return seen

    check_equal(use, at_least=8)


def test_a_list_of_indices_that_becomes_shorter_ends_there() -> None:
    def use() -> Any:
        order = [*range(80)]
        seen = []
        for number, batch in enumerate(DataLoader(Slow(), batch_size=2, sampler=order)):
            patient()
            seen.append(flat(batch))
            if number == 20:
                del order[45:]
        return seen

    check_equal(use, at_least=8)


class Aside(Slow):
    """Draws, and puts the generator back where it was."""

    def __getitem__(self, index: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            drawn = torch.rand(1).item()
        return drawn, super().__getitem__(index)


@pytest.mark.parametrize("draws", ["", "python"])
def test_samples_that_look_at_a_generator_without_moving_it_are_left_alone(draws: str) -> None:
    def step(batch: Any) -> Any:
        patient()
        return torch.nn.functional.dropout(batch[1]["x"], 0.5).tolist()

    check_left_alone(
        epochs(lambda: DataLoader(Aside(draws), batch_size=4), 2, step),
        "look at random generators",
    )


class Wide(Slow):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)["x"].repeat(1 << 10)


def test_batches_that_are_kept_hold_few_slots() -> None:
    found = situation()
    undo = parallel_loading.apply(found)
    try:
        iterator: Any = iter(DataLoader(Wide(), batch_size=2))
        kept, most = [], 0
        for batch in iterator:
            patient()
            kept.append(batch)
            children = iterator._ahead._crew.children if iterator._ahead._crew else []
            most = max([most, *(len(child._slots) for child in children)])
        delivered = iterator._ahead._known.delivered
    finally:
        undo()
    assert 1 < most <= 8
    assert delivered > 25 and not found.failures
    expected = torch.stack([torch.arange(8.0).repeat(1 << 10) * k for k in range(SIZE)])
    assert torch.equal(torch.cat(kept), expected)


class Reading(Slow):
    """Reads a file for each sample."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        return int((self.folder / str(index)).read_text()), super().__getitem__(index)


def test_files_that_the_loop_writes_are_read_again(tmp_path: Path) -> None:
    def use() -> Any:
        for index in range(SIZE):
            (tmp_path / str(index)).write_text("0")
        seen = []
        for number, batch in enumerate(DataLoader(Reading(tmp_path), batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number in (15, 30):
                for index in range(SIZE):
                    (tmp_path / str(index)).write_text(str(number))
        return seen

    check_equal(use, at_least=10)


class Asking(Slow):
    """Its samples are made by what there is in a folder."""

    def __init__(self, folder: Path, ask: Callable[[str], Any]) -> None:
        super().__init__()
        self.folder = folder
        self.ask = ask

    def __getitem__(self, index: int) -> Any:
        try:
            found = self.ask(str(self.folder / str(index // 10)))
        except OSError:
            found = None
        return repr(found), super().__getitem__(index)


QUESTIONS: dict[str, Callable[[str], Any]] = {
    "exists": os.path.exists,
    "isfile": os.path.isfile,
    "isdir": os.path.isdir,
    "islink": os.path.islink,
    "getsize": os.path.getsize,
    "getmtime": lambda path: os.path.getmtime(path) > 0,  # noqa: PTH204
    "realpath": os.path.realpath,
    "stat": lambda path: os.stat(path).st_size,  # noqa: PTH116
    "lstat": lambda path: os.lstat(path).st_size,
    "access": lambda path: os.access(path, os.R_OK),
    "Path.exists": lambda path: Path(path).exists(),
    "Path.stat": lambda path: Path(path).stat().st_size,
    "Path.is_file": lambda path: Path(path).is_file(),
}


def put(number: int, folder: Path) -> None:
    """Files at first, later something else."""
    for name in range(SIZE // 10):
        path = folder / str(name)
        if number == 15:
            path.write_text("some text")
        else:
            path.unlink(missing_ok=True)
            if number == 30:
                path.symlink_to(folder)


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_what_samples_ask_of_files_that_the_loop_makes_is_asked_again(
    ask: Any, tmp_path: Path
) -> None:
    def use() -> Any:
        put(0, tmp_path)
        seen = []
        for number, batch in enumerate(DataLoader(Asking(tmp_path, ask), batch_size=2)):
            patient()
            if number in (8, 20):
                time.sleep(0.1)  # to begin takes some time on a busy machine
            seen.append(flat(batch))
            if number in (15, 30):
                put(number, tmp_path)
        return seen

    check_equal(use, at_least=10)


def test_a_folder_that_samples_ask_for_may_be_written_to(tmp_path: Path) -> None:
    def ask(path: str) -> Any:
        return tmp_path.is_dir() and os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH120

    def step(batch: Any) -> None:
        patient()
        (tmp_path / f"{int(batch[1]['index'][0])}.log").write_text("a checkpoint")

    loader = epochs(lambda: DataLoader(Asking(tmp_path / "data", ask), batch_size=2), 1, step)
    compared = check_equal(loader, at_least=10)
    assert not compared.known[-1].misses


class Storing(Slow):
    """A library of C stores something for each sample."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        torch.save(torch.tensor(index), str(self.folder / f"{index}.pt"))
        return super().__getitem__(index)


def test_what_a_library_writes_is_left_to_the_loop(tmp_path: Path) -> None:
    check_left_alone(epochs(lambda: DataLoader(Storing(tmp_path), batch_size=2)), "writes")


class Trainer:
    step = 0


class Curriculum(Slow):
    """Looks at whom it belongs to."""

    def __init__(self, trainer: Trainer, *, keeps: bool) -> None:
        super().__init__()
        self.trainer = weakref.proxy(trainer)
        self.kept = trainer if keeps else None

    def __getitem__(self, index: int) -> Any:
        return self.trainer.step > 20, super().__getitem__(index)


def trained(*, keeps: bool, steps: range) -> Callable[[], Any]:
    def use() -> Any:
        trainer = Trainer()
        seen = []
        for number, batch in enumerate(DataLoader(Curriculum(trainer, keeps=keeps), batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number in steps:
                trainer.step = number
        return seen

    return use


def test_an_object_behind_a_weak_reference_is_looked_at_where_the_dataset_holds_it() -> None:
    check_equal(trained(keeps=True, steps=range(15, 40, 15)), at_least=10)
    check_left_alone(trained(keeps=False, steps=range(40)), "refers weakly")


class Surrounded(Slow):
    """Its samples are made by what is set elsewhere."""

    def __getitem__(self, index: int) -> Any:
        found = super().__getitem__(index)
        stage = int(os.environ.get("SAMPLES_STAGE", "0"))
        try:
            divided = float(np.float32(index) / np.float32(0.0))
        except FloatingPointError:
            divided = -1.0
        return stage, torch.tensor(0.5).dtype.itemsize, Path.cwd().name, str(divided), found


def set_environment(number: int, _: Path) -> None:
    os.environ["SAMPLES_STAGE"] = str(number)


def set_type(number: int, _: Path) -> None:
    torch.set_default_dtype(torch.float64 if number == 15 else torch.float32)


def set_place(number: int, folder: Path) -> None:
    os.chdir(folder if number == 15 else folder.parent)


def set_errors(number: int, _: Path) -> None:
    np.seterr(divide="raise" if number == 15 else "ignore", invalid="ignore")


@pytest.mark.parametrize("change", [set_environment, set_type, set_place, set_errors])
def test_settings_of_the_process_that_the_loop_changes_are_seen_at_once(
    change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLES_STAGE", "0")
    monkeypatch.chdir(tmp_path.parent)

    def use() -> Any:
        change(0, tmp_path)
        seen = []
        for number, batch in enumerate(DataLoader(Surrounded(), batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number in (15, 30):
                change(number, tmp_path)
        return seen

    with np.errstate(divide="ignore", invalid="ignore"):
        check_equal(use, at_least=10)


class Setting(Slow):
    """Late, a sample has torch make other numbers from then on."""

    def __getitem__(self, index: int) -> Any:
        if index == 40:
            torch.set_default_dtype(torch.float64)
        return super().__getitem__(index)


def test_settings_of_the_process_that_samples_change_are_the_loops() -> None:
    def use() -> Any:
        try:
            return [
                (flat(batch), patient(), str(torch.get_default_dtype()))
                for batch in DataLoader(Setting(), batch_size=2)
            ]
        finally:
            torch.set_default_dtype(torch.float32)

    check_equal(use, at_least=10)


class Mapped(Slow):
    """Reads what lies in a file, at other places than its own as well."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.labels = np.memmap(path, np.int64, "r")

    def __getitem__(self, index: int) -> Any:
        return int(self.labels[(index * 7) % SIZE]), super().__getitem__(index)


@pytest.mark.parametrize("maps_at", [-1, 15], ids=["before", "later"])
def test_a_file_that_the_loop_writes_through_a_map_of_its_own_is_read_by_the_loop(
    maps_at: int, tmp_path: Path
) -> None:
    path = tmp_path / "labels"

    def use() -> Any:
        np.zeros(4096, np.int64).tofile(path)
        loader = DataLoader(Mapped(path), batch_size=2)
        own = np.memmap(path, np.int64, "r+") if maps_at < 0 else None
        seen = []
        for number, batch in enumerate(loader):
            patient()
            seen.append(flat(batch))
            if number == maps_at:
                own = np.memmap(path, np.int64, "r+")
            if number >= 15:
                assert own is not None
                own[:SIZE] = number
        return seen

    compared = Compared(use)
    assert compared.fixed == compared.plain
    assert not compared.failures
    assert "open for writing" in compared.notes


def test_a_file_that_is_mapped_and_that_the_loop_writes_anew_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "labels"

    def use() -> Any:
        np.zeros(4096, np.int64).tofile(path)
        seen = []
        for number, batch in enumerate(DataLoader(Mapped(path), batch_size=2)):
            patient()
            seen.append(flat(batch))
            if number in (15, 30):
                with path.open("r+b") as file:
                    file.write(np.full(SIZE, number).tobytes())
        return seen

    check_equal(use, at_least=10)
