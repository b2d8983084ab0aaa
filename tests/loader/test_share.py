"""Long lists of a dataset are not copied into every worker; they still do what lists do."""

import array
import copy
import os
import pickle
import random
from collections.abc import MutableSequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from slipstream import Loader
from slipstream.errors import StorageError
from slipstream.loader import share
from slipstream.loader.share import SharedList, share_list, share_lists

MOST_EXTRA_BYTES = 50 << 20


class Names(Dataset[torch.Tensor]):
    """Reads a part of its strings with each sample; the last one tells the memory it has by now."""

    def __init__(self, count: int, samples: int = 202) -> None:
        self.names = [f"folder/{k // 1000:05d}/picture_{k:09d}.jpg" for k in range(count)]
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        # Batches go by turns, and half of the samples is an odd number: each worker reads them all.
        half = max(1, self.samples // 2)
        names = self.names
        step = -(-len(names) // half)
        begin = index % half * step
        length = sum(len(names[k]) for k in range(begin, min(begin + step, len(names))))
        return torch.tensor([os.getpid(), length, _own_bytes()])


def _own_bytes() -> int:
    """Memory that this process alone has: its share of shared pages does not count twice."""
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in rollup[1:]}
    return sizes["Private_Dirty"]


def growth(loader_type: Any, names: Names) -> int:
    """How many bytes a worker has more at the end of an epoch than one without names."""

    def most(dataset: Names) -> int:
        loader = loader_type(dataset, 1, num_workers=2, shuffle=False)
        rows = torch.cat(list(loader))
        assert len(set(rows[:, 0].tolist())) == 2
        assert rows[:, 1].sum() == 2 * sum(map(len, dataset.names))
        return int(rows[-20:, 2].max())

    return most(names) - most(Names(0))


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_two_million_names_are_not_copied_into_workers() -> None:
    names = Names(2_000_000)
    assert growth(Loader, names) <= MOST_EXTRA_BYTES
    assert growth(DataLoader, names) > 2 * MOST_EXTRA_BYTES, (
        "torch's workers do copy them: this test can fail"
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_million_names_are_not_copied_into_workers() -> None:
    assert growth(Loader, Names(10_000_000)) <= MOST_EXTRA_BYTES


LISTS: list[list[Any]] = [
    [3, -1, 2**40, 0],
    ["a", "", "größer", "\ud800 half", "😀"],
    [("a", 1), ("b", -2), ("", 3)],
]


@pytest.mark.parametrize("items", LISTS)
def test_a_shared_list_does_what_a_list_does(items: list[Any]) -> None:
    shared: Any = share_list(items)
    assert isinstance(shared, MutableSequence) and not isinstance(shared, list)
    assert len(shared) == len(items)
    assert list(shared) == shared[:] == shared.copy() == items
    assert [shared[k] for k in range(-len(items), len(items))] == items + items
    assert shared[np.int64(1)] == items[1]
    assert shared[1:3] == items[1:3]
    assert shared[::-1] == list(reversed(shared)) == items[::-1]
    assert shared == items and items == shared and shared != items[1:]
    assert items[1] in shared and object() not in shared
    assert shared.index(items[2]) == 2 and shared.count(items[0]) == 1
    more = [1]
    assert shared + more == items + more and more + shared == more + items
    assert shared + shared == items + items
    assert shared * 2 == 2 * shared == items * 2
    assert repr(shared) == repr(items) and bool(shared)
    assert sorted(shared) == sorted(items) and tuple(shared) == tuple(items)
    assert [*shared] == items and list(zip(shared, items, strict=True))
    assert random.Random(1).choice(shared) in items
    assert copy.copy(shared) == copy.deepcopy(shared) == items
    assert type(pickle.loads(pickle.dumps(shared))) is list
    assert pickle.loads(pickle.dumps(shared)) == items
    for index in (len(items), -len(items) - 1):
        with pytest.raises(IndexError):
            shared[index]
    with pytest.raises(TypeError):
        shared["x"]


def test_numpy_and_torch_see_the_items() -> None:
    shared: Any = share_list(list(range(10)))
    assert np.array(shared).dtype == np.int64
    assert array.array("q", shared).tolist() == list(range(10))
    assert np.asarray(shared).tolist() == torch.tensor(shared).tolist() == list(range(10))
    assert ",".join(share_list(["a", "b"])) == "a,b"  # type: ignore[arg-type]


def test_shared_lists_are_ordered_as_lists_are() -> None:
    low: Any = share_list([1, 5])
    high: Any = share_list([2])
    assert low < high and low <= high and high > low and high >= low and low != high
    assert low < [2] and not low < [1, 5] and low <= [1, 5]
    two = [2]
    assert two > low and two >= low and not two < low
    assert low != (1, 5) and low == share_list([1, 5])
    assert high in [low, high] and [low, high].index(high) == 1
    for other in ((2,), 2, None):
        with pytest.raises(TypeError):
            assert low < other
        with pytest.raises(TypeError):
            low + other
        with pytest.raises(TypeError):
            other + low
    with pytest.raises(TypeError):
        hash(low)


def test_a_shared_list_can_be_shuffled() -> None:
    items = list(range(100))
    shared: Any = share_list(items)
    random.Random(3).shuffle(shared)
    random.Random(3).shuffle(items)
    assert shared == items and sorted(shared) == list(range(100))


@pytest.mark.parametrize(
    "change",
    [
        lambda items: items.append(9),
        lambda items: items.extend([9, 8]),
        lambda items: items.insert(1, 9),
        lambda items: items.pop(),
        lambda items: items.remove(2),
        lambda items: items.sort(),
        lambda items: items.sort(key=lambda item: -item, reverse=True),
        lambda items: items.__setitem__(slice(1, 2), [7, 7, 7]),
        lambda items: items.pop(1),
        lambda items: items.reverse(),
        lambda items: items.clear(),
        lambda items: items.__setitem__(0, 9),
        lambda items: items.__delitem__(slice(1, 3)),
        lambda items: items.__iadd__([9]),
        lambda items: items.__imul__(2),
    ],
)
def test_a_shared_list_that_is_changed_becomes_an_ordinary_one(change: Any) -> None:
    items = [3, 1, 2, 5]
    shared: Any = share_list(items)
    copied = copy.copy(shared)
    assert change(shared) == change(items)
    assert copied == [3, 1, 2, 5]
    assert list(shared) == items
    assert len(shared) == len(items)
    assert pickle.loads(pickle.dumps(shared)) == items


@pytest.mark.parametrize(
    "items",
    [
        [], [1.5], [None], [True], [1, "a"], ["a"] * 2000 + [1], [1] * 2000 + [True], [2**70],
        [1] * 2000 + [2**70], [("a", 1, 2)], [["a", 1]], [("a", 1)] * 2000 + ["b"],
    ],
)  # fmt: skip
def test_other_lists_are_left_alone(items: list[Any]) -> None:
    assert share_list(items) is None


def test_without_memory_the_list_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> int:
        raise StorageError("no memory")

    monkeypatch.setattr(share, "make_shared", refuse)
    assert share_list([1, 2]) is None
    assert share_list(["a"]) is None


class Own(Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.samples = [(f"{k}", k) for k in range(count)]
        self.imgs = self.samples
        self.few = [1, 2]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index][1]


def test_only_long_lists_are_moved_and_the_dataset_is_not_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share, "_TOLERATED_BYTES", 10_000)
    dataset = Own(1000)
    shared = share_lists(dataset, workers=2)
    assert type(dataset.samples) is list
    assert type(shared.samples) is SharedList
    assert shared.samples is shared.imgs
    assert shared.few is dataset.few
    assert share_lists(Own(10), workers=2).samples.__class__ is list
    part = share_lists(Subset(ConcatDataset([dataset, Own(10)]), [3, 5]), workers=2)
    assert type(part.dataset.datasets[0].samples) is SharedList
    assert [part[0], part[1]] == [3, 5]


class Handle(Own):
    """Leaves what cannot be pickled out of pickles."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.handle = object()

    def __getstate__(self) -> dict[str, Any]:
        return {"samples": self.samples}


class Unpicklable(Own):
    def __reduce__(self) -> Any:
        raise TypeError("never pickle this")


@pytest.mark.parametrize("kind", [Handle, Unpicklable])
def test_how_a_dataset_is_pickled_does_not_matter(
    kind: type[Own], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "_TOLERATED_BYTES", 10_000)
    dataset = kind(1000)
    shared = share_lists(dataset, workers=2)
    assert type(shared) is kind and type(shared.samples) is SharedList
    assert vars(shared).keys() == vars(dataset).keys()
    assert getattr(shared, "handle", None) is getattr(dataset, "handle", None)


class Slotted(Own):
    __slots__ = ("beside",)


class Closing(Own):
    def __del__(self) -> None:
        pass


class InC(dict[str, int], Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.samples = list(range(count))


@pytest.mark.parametrize("kind", [Slotted, Closing, InC])
def test_a_dataset_that_is_more_than_its_attributes_is_left_alone(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "_TOLERATED_BYTES", 10_000)
    dataset = kind(1000)
    assert share_lists(dataset, workers=2) is dataset
    assert type(dataset.samples) is list


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_read_from_the_shared_list(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "_TOLERATED_BYTES", 10_000)
    loader = Loader(Own(1000), 50, num_workers=1, multiprocessing_context=method)
    assert torch.cat(list(loader)).tolist() == list(range(1000))
