"""`shared-lists`: workers read equal items from shared memory, and nobody can tell."""

import copy
import gc
import multiprocessing
import operator
import os
import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset

from slipstream.run.fix import Situation
from slipstream.run.fixes import fast_loader, shared_lists
from slipstream.run.loading import shared_list_places
from slipstream.run.loading.shared_list import PackedList
from slipstream.run.loading.shared_list_packing import NotPlain, pack
from tests.run.keeping_kit import Drawing
from tests.run.loop_kit import same_losses, situation

COUNT = 1200


def packed(items: list[Any]) -> PackedList:
    return PackedList(items, pack(items))


KINDS: dict[str, Callable[[int], Any]] = {
    "paths": lambda k: f"pictures/größe \udcff{k}.jpg",
    "pairs": lambda k: (f"{k}.jpg", k * 10**20),
    "numbers": lambda k: [k, -k / 3, float("inf"), k % 2 == 0, None][k % 5],
    "bytes": lambda k: bytes([k % 256]) * (k % 7),
    "dicts": lambda k: {"file": f"{k}.jpg", "boxes": [[k, 0.5], []], 3: None, "last": (k,)},
    "rows": lambda k: [f"{k}", k, [], {}],
    "pathlib": lambda k: Path("some") / f"{k}.jpg",
    "pathlib inside": lambda k: {"a": [(PurePosixPath("/x"), PurePosixPath(f"{k}"))]},
}


def form(value: Any) -> Any:
    """Its value with all classes inside it."""
    if isinstance(value, (list, tuple)):
        return type(value), [form(part) for part in value]
    if isinstance(value, dict):
        return dict, [(form(key), form(part)) for key, part in value.items()]
    return type(value), value


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_it_reads_as_the_list_does(make: Callable[[int], Any]) -> None:
    items = [make(k) for k in range(COUNT)]
    shared = packed([make(k) for k in range(COUNT)])
    assert form([*shared]) == form(items)
    assert len(shared) == COUNT
    for index in (0, -1, 77, -COUNT, np.int64(5), True, torch.tensor(9)):
        assert form(shared[index]) == form(items[index])
    for part in (slice(3, 9), slice(None, None, -100), slice(5000, 6000), slice(-3, None)):
        assert form(shared[part]) == form(items[part])
    assert [*reversed(shared)] == items[::-1]
    assert shared.is_untouched()


def test_it_is_a_list_to_whoever_asks() -> None:
    items = [f"{k}.jpg" for k in range(COUNT)]
    shared: Any = packed([*items])
    assert isinstance(shared, list) is True
    others = [*items[:-1], "other"]
    assert shared == items and items == shared and shared == packed(items)
    assert shared != others and others != shared
    assert shared < others and others > shared and shared >= items  # noqa: PLR1716
    assert "7.jpg" in shared and "x" not in shared
    assert shared.index("9.jpg") == 9 and shared.count("9.jpg") == 1
    assert operator.add(shared, ["x"]) == [*items, "x"]
    assert operator.add(["x"], shared) == ["x", *items]
    assert shared * 2 == 2 * shared == items * 2
    assert repr(shared) == repr(items) and sorted(shared) == sorted(items)
    assert np.array(shared).tolist() == items
    for copied in (copy.copy(shared), copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert type(copied) is list and copied == items
    numbers: Any = packed([*range(1000, 2000)])
    assert torch.tensor(numbers).tolist() == [*range(1000, 2000)]
    assert random.Random(1).sample(shared, 5) == random.Random(1).sample(items, 5)
    wrongs: list[tuple[Any, Any]] = [
        (COUNT, IndexError), (-COUNT - 1, IndexError), ("x", TypeError), (1.5, TypeError)
    ]  # fmt: skip
    for wrong, error in wrongs:
        for one in (shared, items):
            with pytest.raises(error, match="list ind"):
                one[wrong]
    with pytest.raises(TypeError, match="unhashable"):
        hash(shared)
    assert shared.is_untouched()


def test_items_are_what_somebody_made_of_them() -> None:
    """The same steps on a list and on one that is shared."""
    chance = random.Random(0)
    make = KINDS["dicts"]
    items = [make(k) for k in range(COUNT)]
    shared: Any = packed([make(k) for k in range(COUNT)])
    held: list[tuple[Any, Any]] = []
    for step in range(6000):
        place = chance.randrange(COUNT)
        ours, theirs = shared[place], items[place]
        assert ours == theirs
        if step % 7 == 0:
            ours["seen"] = theirs["seen"] = step
        if step % 11 == 0:
            ours["boxes"][0].append(step)
            theirs["boxes"][0].append(step)
        if step % 13 == 0:
            held.append((ours["boxes"], theirs["boxes"]))
        if held and step % 17 == 0:
            for one in held.pop(0):
                one.append([step])
        assert shared[place] is ours
    del ours, theirs
    assert [*shared] == items
    assert not shared.is_untouched()
    assert shared == items


def test_items_that_were_only_read_are_not_kept() -> None:
    shared = packed([KINDS["dicts"](k) for k in range(COUNT)])
    for place in range(COUNT):
        assert shared[place]["file"] == f"{place}.jpg"
    assert len(shared._lent) <= 256
    assert shared.is_untouched() and not shared._lent and not shared._own


CHANGES: list[Callable[[Any], Any]] = [
    lambda x: x.append("new"),
    lambda x: x.__setitem__(3, "new"),
    lambda x: x.__delitem__(slice(5, 10)),
    lambda x: x.sort(reverse=True),
    lambda x: x.reverse(),
    lambda x: x.pop(),
    lambda x: x.remove("9.jpg"),
    lambda x: x.extend(["a", "b"]),
    lambda x: x.insert(0, "first"),
    lambda x: x.clear(),
    lambda x: random.Random(3).shuffle(x),
    lambda x: x.__iadd__(["more"]),
    lambda x: x.__imul__(2),
]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_go_to_the_list_itself(change: Callable[[Any], Any]) -> None:
    expected = [f"{k}.jpg" for k in range(COUNT)]
    items = [*expected]
    shared = packed(items)
    change(expected)
    change(shared)
    assert items == expected and [*shared] == expected and len(shared) == len(expected)
    assert not shared.is_untouched()


def test_a_change_by_another_name_is_seen() -> None:
    items = [f"{k}.jpg" for k in range(COUNT)]
    shared = packed(items)
    items.append("new")
    assert shared[-1] == "new" and len(shared) == COUNT + 1 and not shared.is_untouched()


def test_a_failure_is_told_once_and_the_list_goes_on() -> None:
    items = [f"{k}.jpg" for k in range(COUNT)]
    shared = PackedList(items, replace(pack(items), item=lambda place: 1 / 0))
    with pytest.warns(UserWarning, match="slipstream: a list in shared memory failed"):
        assert shared[7] == "7.jpg"
    assert shared[8] == "8.jpg"


class Text(str):
    __slots__ = ()


def shared_inside() -> list[Any]:
    same = [1]
    return [{"a": same} for _ in range(COUNT)]


STRANGE: dict[str, Callable[[], list[Any]]] = {
    "subclasses": lambda: [Text(k) for k in range(COUNT)],
    "arrays": lambda: [np.zeros(2) for _ in range(COUNT)],
    "numpy numbers": lambda: [np.float64(k) for k in range(COUNT)],
    "tensors": lambda: [(f"{k}", torch.zeros(1)) for k in range(COUNT)],
    "sets": lambda: [{k} for k in range(COUNT)],
    "bytearrays": lambda: [{"x": bytearray(3)} for k in range(COUNT)],
    "one that is strange": lambda: [*range(100_000), "x", object()],
    "classes of paths": lambda: [Path("a"), PurePosixPath("b")] * COUNT,
    "the same inside many": shared_inside,
}


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_other_items_are_left_alone(make: Callable[[], list[Any]]) -> None:
    with pytest.raises(NotPlain):
        pack(make())


def test_the_deepest_and_one_that_holds_itself() -> None:
    items: list[Any] = [[k] for k in range(COUNT)]
    items[3].append(items[3])
    with pytest.raises(NotPlain, match="too deeply"):
        pack(items)


def test_items_that_others_have_stay_theirs() -> None:
    items = [{"k": k, "l": [k]} for k in range(COUNT)]
    first, inner = items[5], items[7]["l"]
    shared = packed(items)
    assert shared.packed.held == {5, 7}
    assert shared[5] is first and shared[7]["l"] is inner and shared.is_untouched()


# In datasets.


class Files(Dataset[Any]):
    """Tells what it found, and how its list is kept in this process."""

    def __init__(self, count: int = COUNT) -> None:
        self.files = [(f"folder/{k}.jpg", k) for k in range(count)]
        self.labels = {"train": [k * 1000 for k in range(count)], "few": [1, 2]}
        self.same = self.files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        name, number = self.files[index]
        return name, number, self.labels["train"][index], self.same is self.files, kept_as(self)


def kept_as(dataset: Any) -> str:
    return type(dataset.files).__name__


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_list_places, "LEAST_BYTES", 1)


@pytest.fixture
def known() -> Iterator[Situation]:
    found = Situation({"findings": []}, SimpleNamespace(loaders=[], clock="host", calls=[]))
    undo = shared_lists.apply(found)
    yield found
    undo()
    assert found.failures == {}


def kinds(loader: Any) -> set[str]:
    return {kind for batch in loader for kind in batch[-1]}


def test_workers_have_it_and_the_loop_has_its_list(known: Situation) -> None:
    dataset = Files()
    files, train = dataset.files, dataset.labels["train"]
    names = []
    loader = DataLoader(dataset, 100, num_workers=2)
    for batch in loader:
        assert set(batch[-1]) == {"PackedList"} and bool(batch[3].all())
        assert batch[2].tolist() == [1000 * number for number in batch[1].tolist()]
        assert dataset.files is dataset.same is files and dataset.labels["train"] is train
        names += batch[0]
    assert names == [name for name, _ in files]
    (line,) = known.notes["shared-lists"]
    assert f"2 lists of {2 * COUNT:,} items" in line and "all workers share" in line
    assert kinds(DataLoader(dataset, 100)) == {"list"}


def test_a_list_that_the_loop_changes_is_packed_anew(known: Situation) -> None:
    dataset = Files()
    loader = DataLoader(dataset, 300, num_workers=1)
    assert next(iter(loader))[0][3] == "folder/3.jpg"
    dataset.files[3] = ("other.jpg", 3)
    assert next(iter(loader))[0][3] == "other.jpg"
    dataset.files[4] = ("folder/4.jpg", True)  # equal, and another class
    assert next(iter(loader))[1].dtype == torch.int64
    dataset.files = dataset.same = [("new", k) for k in range(COUNT)]
    assert next(iter(loader))[0][3] == "new"


class Annotated(Dataset[Any]):
    """Notes something down in its annotations, and counts."""

    def __init__(self) -> None:
        self.annotations: list[Any] = [{"k": k, "boxes": [[float(k)]]} for k in range(COUNT)]

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        found: Any = self.annotations[index % 50]
        found["seen"] = found.get("seen", 0) + 1
        found["boxes"].append([float(index)])
        return found["seen"], torch.tensor(found["boxes"]).sum()


def test_what_samples_change_stays_in_their_worker(known: Situation) -> None:
    def run() -> list[Any]:
        dataset = Annotated()
        loader = DataLoader(dataset, 20, num_workers=2, persistent_workers=True)
        found = [[part.tolist() for part in batch] for _ in range(2) for batch in loader]
        dataset.annotations[9]["boxes"].clear()
        found.append([part.tolist() for part in next(iter(DataLoader(dataset, 20, num_workers=1)))])
        return found

    fixed = run()
    assert "all workers share" in str(known.notes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_list_places, "LEAST_BYTES", 1 << 40)
        assert run() == fixed


def test_items_that_the_loop_changes_are_seen(known: Situation) -> None:
    dataset = Annotated()
    loader = DataLoader(dataset, 20, num_workers=1)
    before = next(iter(loader))[1].tolist()
    dataset.annotations[3]["boxes"][0][0] += 1000.0
    after = next(iter(loader))[1].tolist()
    assert [b - a for a, b in zip(before, after, strict=True)] == [
        1000.0 * (k == 3) for k in range(20)
    ]


class Sorting(Files):
    def __getitem__(self, index: int) -> Any:
        if index == 150:
            self.files.reverse()
        return super().__getitem__(index)


def test_a_list_that_workers_change_is_left_alone_the_next_time(known: Situation) -> None:
    dataset = Sorting()
    loader = DataLoader(dataset, 100, num_workers=1)
    batches = [*loader]
    assert batches[2][0][0] == f"folder/{COUNT - 201}.jpg"
    assert set(batches[2][-1]) == {"PackedList"}  # which reads from its list
    assert dataset.files[0] == ("folder/0.jpg", 0)
    assert kinds(loader) == {"list"}
    assert "workers change it" in str(known.notes)


class ByClass(Files):
    def shown(self) -> bool:
        return type(self.files) is list


class Property(Files):
    @property
    def files(self) -> Any:
        return vars(self)["files"]

    @files.setter
    def files(self, value: Any) -> None:
        vars(self)["files"] = value


NAMES = [(f"folder/{k}.jpg", k) for k in range(COUNT)]


class ByAnotherName(Files):
    def __init__(self) -> None:
        super().__init__()
        self.files = self.same = NAMES

    def forget(self, index: int) -> None:
        NAMES[index] = ("", 0)


class OwnList(list[Any]):
    pass


class Subclassed(Files):
    def __init__(self) -> None:
        super().__init__()
        self.files = self.same = OwnList(self.files)


@pytest.mark.parametrize("make", [ByClass, Property, Subclassed, ByAnotherName, lambda: Files(999)])
def test_datasets_where_it_might_show_are_left_alone(
    known: Situation, make: Callable[[], Any]
) -> None:
    assert kinds(DataLoader(make(), 100, num_workers=1)) <= {"list", "OwnList"}


def test_small_lists_are_left_alone(known: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_list_places, "LEAST_BYTES", 24 << 20)
    assert kinds(DataLoader(Files(), 100, num_workers=1)) == {"list"}
    assert not known.notes


def test_lists_of_the_same_objects_take_nothing() -> None:
    assert shared_list_places.taken_by([k % 10 for k in range(10_000)]) < 10_000
    assert shared_list_places.taken_by([f"{k:60}" for k in range(10_000)]) > 900_000
    # A worker that reads one of these copies a page of it.
    assert shared_list_places.taken_by([bytes(k + 50_000) for k in range(1000)]) == 0


@pytest.mark.slow
def test_spawned_workers_get_lists(known: Situation) -> None:
    loader = DataLoader(Files(), 100, num_workers=1, multiprocessing_context="spawn")
    assert kinds(loader) == {"list"}


def test_datasets_inside_others(known: Situation) -> None:
    parts: Any = ConcatDataset([Files(), Subset(Files(), [*range(COUNT)][::-1])])
    loader = DataLoader(Subset(parts, range(1100, 1300)), 50, num_workers=2)
    batches = [*loader]
    assert {kind for batch in batches for kind in batch[-1]} == {"PackedList"}
    assert batches[-1][1][-1] == COUNT - 100
    assert "3 lists" not in str(known.notes) and "5 lists" in str(known.notes)


class Stream(IterableDataset[Any]):
    def __init__(self) -> None:
        self.files = [f"{k}.jpg" for k in range(COUNT)]

    def __iter__(self) -> Iterator[Any]:
        for name in self.files:
            yield name, kept_as(self)


def test_iterable_datasets(known: Situation) -> None:
    batches = [*DataLoader(Stream(), 100, num_workers=1)]
    assert [name for batch in batches for name in batch[0]] == Stream().files
    assert {kind for batch in batches for kind in batch[1]} == {"PackedList"}


def test_a_failure_leaves_the_script_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Situation({"findings": []}, SimpleNamespace(loaders=[], clock="host", calls=[]))
    monkeypatch.setattr(shared_list_places, "pack", lambda items: 1 / 0)
    undo = shared_lists.apply(found)
    try:
        with pytest.warns(UserWarning, match="slipstream: shared-lists failed"):
            assert kinds(DataLoader(Files(), 100, num_workers=1)) == {"list"}
    finally:
        undo()
    assert "ZeroDivisionError" in found.failures["shared-lists"]


def test_lists_are_given_back_where_workers_cannot_start() -> None:
    dataset: Any = Files()
    files = dataset.files
    views = shared_list_places.Shelf().views(dataset, print)
    with pytest.raises(OSError, match="no processes"), shared_list_places.in_place(views):
        assert type(dataset.files) is type(dataset.same) is PackedList
        assert type(dataset.labels["train"]) is PackedList
        raise OSError("no processes")
    assert dataset.files is dataset.same is files and type(dataset.labels["train"]) is list


def test_what_the_script_puts_there_meanwhile_stays() -> None:
    dataset = Annotated()
    mine: list[Any] = [{"k": 0}]
    with shared_list_places.in_place(shared_list_places.Shelf().views(dataset, print)):
        dataset.annotations[3]["boxes"].append([9.0])
        before = dataset.annotations
        dataset.annotations = mine
    assert dataset.annotations is mine
    assert before[3]["boxes"] == [[3.0], [9.0]]


class Long(Drawing):
    """With what `fast-loader` looks at when it keeps workers."""

    def __init__(self) -> None:
        super().__init__()
        self.files = [(f"folder/{k}.jpg", k) for k in range(COUNT)]

    def __getitem__(self, index: int) -> Any:
        return self.files[index], kept_as(self), os.getpid()


def test_workers_that_live_on_share_them_as_well(known: Situation) -> None:
    undo = fast_loader.apply(known)
    # In the order in which a run applies them.
    again = shared_lists.apply(known)
    try:
        dataset = Long()
        loader = DataLoader(dataset, 2, num_workers=2)
        epochs = [[*loader] for _ in range(2)]
        dataset.files[3] = ("changed", 3)
        epochs.append([*loader])
    finally:
        again()
        undo()
    pids = [{int(pid) for batch in epoch for pid in batch[-1]} for epoch in epochs]
    assert pids[0] == pids[1] and not pids[1] & pids[2]
    assert epochs[2][1][0][0][1] == "changed" != epochs[1][1][0][0][1]
    assert all(kind == "PackedList" for epoch in epochs for batch in epoch for kind in batch[1])


# In scripts.

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __init__(self):
        self.texts = TEXTS
    def __len__(self): return 64
    def __getitem__(self, i):
        some = [self.texts[(i * 7919 + 15013 * k) % len(self.texts)] for k in range(20)]
        return torch.tensor([float(len(text)) for text in some])

model = torch.nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = Texts()
for epoch in range(2):
    for x in DataLoader(data, 8, num_workers=2, shuffle=True):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


def test_a_script_with_a_long_list(tmp_path: Path) -> None:
    texts = "[f'text number {k}' + 'x' * (k % 50) for k in range(20_000)]"
    _, found = same_losses(SCRIPT.replace("TEXTS", texts), tmp_path, "shared-lists")
    assert "a list of 20,000 items" in found.notes["shared-lists"][0]


def test_a_script_with_an_array_is_left_alone(tmp_path: Path) -> None:
    texts = "__import__('numpy').full(20_000, 'x' * 70)"
    _, found = same_losses(SCRIPT.replace("TEXTS", texts), tmp_path, "shared-lists")
    assert found.notes == {}


def private_bytes(pid: int) -> int:
    """That a process shares with nobody."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    lines = [line.split() for line in text.splitlines() if line.startswith("Private_")]
    return 1024 * sum(int(line[1]) for line in lines)


class Touching(Dataset[Any]):
    """Reads ten items for each sample."""

    def __init__(self) -> None:
        self.files = [f"/data/pictures/train/n01440764/n01440764_{k}.JPEG" for k in range(400_000)]

    def __len__(self) -> int:
        return 6000

    def __getitem__(self, index: int) -> Any:
        count = len(self.files)
        return sum(
            len(self.files[(index * 7919 + 4001 * k) % count]) for k in range(100)
        ), os.getpid()


def most_private() -> float:
    """What a worker has for its own, at most, in MiB."""
    gc.collect()
    found: list[int] = []
    for _, pids in DataLoader(Touching(), 100, num_workers=2):
        # The last batches are there when their workers are not.
        alive = [pid for pid in set(pids.tolist()) if Path(f"/proc/{pid}").exists()]
        found += map(private_bytes, alive)
    return max(found) / 2**20


@pytest.mark.slow
@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="workers are not forked")
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_workers_copy_hardly_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the size that counts is the real one
    before = most_private()
    found = situation()
    undo = shared_lists.apply(found)
    try:
        after = most_private()
    finally:
        undo()
    # All 400,000 names, of 100 bytes each, less what workers have anyway.
    assert before - after > 24
    assert after < 0.5 * before
    assert "a list of 400,000 items" in found.notes["shared-lists"][0]


def test_it_applies_where_workers_copy_or_have_much_to_copy() -> None:
    def loader(**facts: Any) -> Any:
        made = {"workers": 2, "start_method": "fork", "dataset": "Files", "facts": {"samples": 100}}
        return SimpleNamespace(**{**made, **facts})

    found = shared_lists.applies(situation(rules=("copy-on-write",), loaders=[loader()]))
    assert found == (True, "workers copy the dataset bit by bit (train.py:1)")
    large = loader(facts={"samples": 1_281_167})
    assert shared_lists.applies(situation(loaders=[loader(), large])) == (
        True, "Files has 1,281,167 samples, which every worker would copy",
    )  # fmt: skip
    assert not shared_lists.applies(situation(loaders=[loader()]))[0]
    assert not shared_lists.applies(situation(loaders=[loader(facts={"samples": None})]))[0]
    alone = loader(workers=0, start_method=None, facts={"samples": 10**7})
    assert not shared_lists.applies(situation(loaders=[alone]))[0]
    spawned = loader(start_method="spawn", facts={"samples": 10**7})
    assert not shared_lists.applies(situation(loaders=[spawned]))[0]
