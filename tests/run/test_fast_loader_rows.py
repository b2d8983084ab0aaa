"""Rows that lie in memory are gathered in one step, and the batches are torch's."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from slipstream.run.fixes import fast_loader
from slipstream.run.loading.conversions import Refused
from slipstream.run.loading.getters import rows_of
from slipstream.run.loading.rows import RowsFetcher, way_to_rows
from slipstream.run.seen import digest
from tests.run.test_fast_loader import epochs, flat, run, situation

COUNT = 64
X = torch.arange(COUNT * 6, dtype=torch.float32).reshape(COUNT, 2, 3)
Y = torch.arange(COUNT)


class Rows(Dataset[Any]):
    def __init__(self, x: Any = X, y: Any = Y) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


class InDict(Rows):
    def __getitem__(self, index: int) -> Any:
        return {"y": self.y[index], "pair": [self.x[index], self.y[index]]}


class InSteps(Rows):
    def __getitem__(self, index: int) -> Any:
        x = self.x[index]
        label = self.y[index]
        return x, label


class Single(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.x[index]


class Kaggle(Rows):
    def __getitem__(self, index: Any) -> Any:
        """As many notebooks have it."""
        if torch.is_tensor(index):
            index = index.tolist()
        dct = {
            "x": torch.tensor(self.x[index, :], dtype=torch.float),
            "y": torch.tensor(self.y[index], dtype=torch.float),
        }
        return dct  # noqa: RET504


class FromArrays(Rows):
    def __getitem__(self, index: int) -> Any:
        x, y = torch.from_numpy(self.x[index]).float(), int(self.y[index])
        return x, y


class Classes(Rows):
    def __getitem__(self, index: int) -> Any:
        return torch.FloatTensor(self.x[index]), torch.as_tensor(self.y[index], dtype=torch.long)


class Casts(Rows):
    def __getitem__(self, index: int) -> Any:
        return (
            self.x[index].astype(np.float32),
            self.x[index].astype("float64"),
            float(self.y[index]),
        )


class Tensors(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.x[index].to(torch.float64), self.y[index].long(), self.y[index].item()


def arrays(kind: type[Rows], x: str = "f8", y: str = "i8") -> Rows:
    return kind((X.numpy() % 200 / 7).astype(x), Y.numpy().astype(y))


def numpy_rows(kind: str) -> Rows:
    return Rows((X.numpy() % 200).astype(kind), Y.numpy().astype(kind))


FOUND: list[tuple[str, Callable[[], Any]]] = [
    ("tensors", lambda: TensorDataset(X, Y, X.half(), Y % 2 == 0)),
    ("subset", lambda: Subset(TensorDataset(X, Y), range(0, COUNT, 2))),
    ("subset of a subset", lambda: Subset(Subset(Rows(), list(range(50, 0, -1))), range(40))),
    ("hand-written", Rows),
    ("dict", InDict),
    ("steps", InSteps),
    ("single", Single),
    ("kaggle", lambda: arrays(Kaggle)),
    ("kaggle, floats", lambda: arrays(Kaggle, "f4", "f8")),
    ("from arrays", lambda: arrays(FromArrays)),
    ("classes", lambda: arrays(Classes)),
    ("casts", lambda: arrays(Casts, "f8", "f4")),
    ("casts of tensors", Tensors),
    *((kind, lambda kind=kind: numpy_rows(kind)) for kind in ("f4", "f8", "f2", "u1", "i4", "?")),
]


def check(make: Callable[[], Any], *, is_found: bool, **arguments: Any) -> None:
    given = {"batch_size": 8, "shuffle": True, **arguments}
    use = epochs(lambda: DataLoader(make(), **given))
    plain = run(use)
    gathered: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        own = torch.Tensor.index_select

        def counted(tensor: torch.Tensor, *args: Any) -> torch.Tensor:
            gathered.append(1)
            return own(tensor, *args)

        patch.setattr(torch.Tensor, "index_select", counted)
        undo = fast_loader.apply(situation())
        try:
            fixed = run(use)
        finally:
            undo()
    assert fixed == plain
    if not given.get("num_workers"):
        assert bool(gathered) == is_found


@pytest.mark.parametrize("make", [make for _, make in FOUND], ids=[name for name, _ in FOUND])
def test_rows_are_gathered(make: Callable[[], Any]) -> None:
    check(make, is_found=True)


def test_arrays_of_another_kind_are_compared_again() -> None:
    data: Any = arrays(Kaggle)
    fetcher = RowsFetcher(data, True, default_collate, False)
    rows = list(range(8))
    first = fetcher.fetch(rows)
    data.x = torch.zeros(COUNT, 2, 3)  # of which torch.tensor warns
    with pytest.warns(UserWarning, match="copy construct"):
        second = fetcher.fetch(rows)
    assert first["x"].any() and not second["x"].any()


def test_floats_are_not_rounded_to_whole_numbers() -> None:
    """What does not fit may become something else in a loop than by itself."""
    way = way_to_rows(arrays(Rounds))
    assert way is not None
    with pytest.raises(Refused):
        way.gather(list(range(8)))


def test_what_torch_is_called_must_be_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert way_to_rows(arrays(Kaggle)) is not None
    monkeypatch.setitem(globals(), "torch", None)
    assert way_to_rows(arrays(Kaggle)) is None


def test_rows_are_gathered_in_workers() -> None:
    check(Rows, is_found=True, num_workers=2)


def test_the_last_batch_may_be_short() -> None:
    check(lambda: TensorDataset(X[:61], Y[:61]), is_found=True)


class Transforming(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.x[index] * 2, self.y[index]


class Shifted(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.x[index - 1], self.y[index]


class Random(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.x[index], torch.rand(2)


class Property(Rows):
    @property
    def z(self) -> Any:
        return self.x * 2

    def __getitem__(self, index: int) -> Any:
        return self.z[index], self.y[index]


class Watching(Rows):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Rounds(Rows):
    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.x[index], dtype=torch.long), self.y[index]


class Grey(Rows):
    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.x[index] / 255), self.y[index]


class Cut(Rows):
    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.x[index, 1:]), self.y[index]


OTHERS: list[tuple[str, Callable[[], Any]]] = [
    ("transform", Transforming),
    ("divided", lambda: arrays(Grey)),
    ("a part", lambda: arrays(Cut)),
    ("shifted", Shifted),
    ("random", Random),
    ("property", Property),
    ("__getattribute__", Watching),
    ("list", lambda: Rows(X.tolist(), Y.tolist())),
    ("strings", lambda: Rows([str(k) for k in range(COUNT)])),
    ("strided", lambda: Rows(X.transpose(1, 2))),
    ("subclass", lambda: Rows(torch.nn.Parameter(X, requires_grad=False))),
]


@pytest.mark.parametrize("make", [make for _, make in OTHERS], ids=[name for name, _ in OTHERS])
def test_others_are_left_alone(make: Callable[[], Any]) -> None:
    check(make, is_found=False)


class _Once:
    """Numbers of batches that can be gone through once."""

    def __iter__(self) -> Iterator[Any]:
        yield from ((number for number in range(start, start + 16)) for start in (0, 16))


def test_batches_of_numbers_that_are_no_lists_are_left_alone() -> None:
    dataset = numpy_rows("f8")
    fetched = RowsFetcher(dataset, True, default_collate, False)
    usual = _MapDatasetFetcher(dataset, True, default_collate, False)  # type: ignore[no-untyped-call]
    for one, other in zip(_Once(), _Once(), strict=True):
        assert digest(fetched.fetch(one)) == digest(usual.fetch(other))  # type: ignore[no-untyped-call]


def test_own_collate_and_small_batches_are_left_alone() -> None:
    check(Rows, is_found=False, collate_fn=list)
    check(Rows, is_found=False, batch_size=4)
    check(Rows, is_found=False, batch_size=None)


def test_data_that_changes_is_seen() -> None:
    def use() -> Any:
        dataset, seen = Rows(X.clone()), []
        for number, batch in enumerate(DataLoader(dataset, batch_size=8)):
            seen.append(flat(batch))
            if number == 3:
                dataset.x[-8:] = -1
            if number == 5:
                dataset.x = np.ones((COUNT, 2), np.float32)
        return seen

    plain = run(use)
    undo = fast_loader.apply(situation())
    try:
        assert run(use) == plain
    finally:
        undo()


def test_a_number_that_is_not_there_is_torchs_error() -> None:
    def use() -> Any:
        seen: list[Any] = []
        batches = [[*range(8)], [*range(60, 68)], [*range(8)], [-1, *range(8)]]
        iterator = iter(DataLoader(TensorDataset(X, Y), batch_sampler=batches))
        while True:
            try:
                seen.append(flat(next(iterator)))
            except StopIteration:
                return seen
            except IndexError as error:
                seen.append(str(error))

    plain = run(use)
    undo = fast_loader.apply(situation())
    try:
        assert run(use) == plain
    finally:
        undo()


def test_another_collate_of_tensors_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(batch: Any, *, collate_fn_map: Any = None) -> int:
        return len(batch)

    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, count)
    assert way_to_rows(TensorDataset(X, Y)) is None


def test_a_wrong_way_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    fetcher = RowsFetcher(Rows(), True, torch.utils.data.default_collate, False)
    assert fetcher._way is not None
    monkeypatch.setattr(fetcher._way, "gather", lambda index: [X[:8], Y[:8]])
    assert fetcher.fetch(list(range(8, 16)))[1].tolist() == list(range(8, 16))
    assert fetcher._way is None


def test_getters_that_do_more_are_not_rows() -> None:
    def two(self: Any, index: int) -> Any:
        self.seen = index
        return self.x[index]

    def branch(self: Any, index: int) -> Any:
        return self.x[index] if self.y else self.y[index]

    def with_default(self: Any, index: int, more: int = 0) -> Any:
        return self.x[index]

    def deep(self: Any, index: int) -> Any:
        return self.x[index][index]

    def constant(self: Any, index: int) -> Any:
        return self.x[index], 1

    for getter in (two, branch, with_default, deep, constant, len, None):
        assert rows_of(getter) is None
