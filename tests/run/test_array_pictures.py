"""Pictures that lie in one array, in batches: the same bits, and the same numbers drawn."""

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, default_collate

from slipstream.run.loading import array_pictures
from slipstream.run.loading.rows import RowsFetcher, way_to_rows
from slipstream.run.loading.single import lies_in_memory
from tests.augment import standins
from tests.run.public_runs import FOLDER
from tests.run.test_fast_loader import check_equal, epochs

COUNT = 70
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def own_class(module: str, name: str) -> Any:
    """torchvision's, or the one that stands in for it."""
    if importlib.util.find_spec("torchvision") is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(importlib.import_module(f"torchvision.datasets.{module}"), name)
    path = FOLDER / "standins" / "torchvision" / "datasets" / f"{module}.py"
    spec = importlib.util.spec_from_file_location(f"torchvision.datasets.{module}", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return getattr(made, name)


def transforms() -> Any:
    if importlib.util.find_spec("torchvision") is None:
        return standins.v1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("torchvision.transforms")


MNIST, CIFAR10, T = own_class("mnist", "MNIST"), own_class("cifar", "CIFAR10"), transforms()


def made(kind: Any, transform: Any, **other: Any) -> Any:
    """A dataset, without its files."""
    dataset = object.__new__(kind)
    rng = np.random.default_rng(3)
    is_gray = issubclass(kind, MNIST)
    pixels = rng.integers(0, 256, (COUNT, 28, 28) if is_gray else (COUNT, 32, 32, 3), np.uint8)
    labels = rng.integers(0, 10, COUNT)
    dataset.data = torch.from_numpy(pixels) if is_gray else pixels
    dataset.targets = torch.from_numpy(labels) if is_gray else labels.tolist()
    dataset.transform, dataset.target_transform = transform, None
    for name, value in other.items():
        setattr(dataset, name, value)
    return dataset


def digits(*steps: Any, **other: Any) -> Any:
    return made(MNIST, T.Compose(list(steps)), **other)


def pictures(*steps: Any, **other: Any) -> Any:
    return made(CIFAR10, T.Compose(list(steps)), **other)


FOUND: dict[str, Callable[[], Any]] = {
    "digits": lambda: digits(T.ToTensor(), T.Normalize((0.1307,), (0.3081,))),
    "digits as they are": lambda: made(MNIST, T.ToTensor()),
    "digits, cropped": lambda: digits(T.RandomCrop(28, padding=2), T.ToTensor()),
    "digits, other class": lambda: made(type("Fashion", (MNIST,), {}), T.ToTensor()),
    "pictures": lambda: pictures(T.ToTensor(), T.Normalize(MEAN, STD)),
    "usual": lambda: pictures(
        T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)
    ),
    "other order": lambda: pictures(
        T.RandomVerticalFlip(0.3), T.RandomHorizontalFlip(0.9), T.RandomCrop((20, 24)),
        T.ToTensor(), T.Normalize(MEAN, STD),
    ),
    "edges": lambda: pictures(
        T.RandomCrop(32, padding=(1, 2)), T.RandomCrop(30, padding=[1, 2, 3, 4]), T.ToTensor()
    ),
    "padded": lambda: pictures(
        T.Pad(4), T.RandomHorizontalFlip(), T.RandomCrop(32), T.ToTensor()
    ),
    "nothing to resize": lambda: digits(
        T.Resize(28), T.ToTensor(), T.Normalize([0.5], [0.5])
    ),
    "enlarged": lambda: digits(T.Resize(32), T.ToTensor()),
    "mirrored, smaller, cut": lambda: pictures(
        T.RandomHorizontalFlip(), T.Resize((20, 26)), T.CenterCrop(18), T.RandomCrop(18, padding=1),
        T.ToTensor(),
    ),
    "nothing to crop": lambda: pictures(T.RandomCrop(32), T.ToTensor()),
    "normalized twice": lambda: pictures(
        T.ToTensor(), T.Normalize(MEAN, STD), T.Normalize((0.5,), (0.5,))
    ),
    "subset": lambda: Subset(pictures(T.RandomHorizontalFlip(), T.ToTensor()), range(1, 69)),
}  # fmt: skip


GATHERED = "gathered in one step"


def check(make: Callable[[], Any], *, is_found: bool, **arguments: Any) -> None:
    given = {"batch_size": 16, "shuffle": True, **arguments}
    if given.get("num_workers"):
        says, never = "", ""  # that is said in the workers
    else:
        says, never = (GATHERED, "") if is_found else ("", GATHERED)
    check_equal(epochs(lambda: DataLoader(make(), **given)), says=says, never=never)


@pytest.mark.parametrize("name", FOUND)
def test_batches_are_gathered(name: str) -> None:
    check(FOUND[name], is_found=True)


@pytest.mark.parametrize("name", ["digits", "usual", "edges"])
def test_in_workers_too(name: str) -> None:
    check(FOUND[name], is_found=True, num_workers=2)


def test_most_batches_are_not_made_sample_by_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    dataset = FOUND["usual"]()
    own = T.ToTensor.__call__
    monkeypatch.setattr(
        T.ToTensor, "__call__", lambda step, picture: calls.append(1) or own(step, picture)
    )
    fetcher = RowsFetcher(dataset, True, default_collate, False)
    for first in range(0, 64, 16):
        fetcher.fetch(list(range(first, first + 16)))
    assert len(calls) == 16  # the first batch, to compare


def test_a_dataset_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, calls = digits(T.ToTensor()), []
    own = MNIST.__getitem__
    monkeypatch.setattr(MNIST, "__getitem__", changed := copied(own, lambda: calls.append(1)))
    assert type(dataset).__getitem__ is changed
    for _ in range(3):  # epochs
        RowsFetcher(dataset, True, default_collate, False).fetch(list(range(16)))
    assert len(calls) == 16
    dataset.transform = T.Compose([T.ToTensor(), T.Normalize((0.5,), (0.5,))])
    RowsFetcher(dataset, True, default_collate, False).fetch(list(range(16)))
    assert len(calls) == 32


def copied(own: Any, heard: Callable[[], None]) -> Any:
    """As if it were torchvision's."""

    def get(dataset: Any, index: int) -> Any:
        heard()
        return own(dataset, index)

    get.__module__, get.__qualname__ = own.__module__, own.__qualname__
    return get


def test_a_getter_that_somebody_wrapped_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = MNIST.__getitem__

    @functools.wraps(own)
    def logged(dataset: Any, index: int) -> Any:
        return own(dataset, index)

    assert way_to_rows(digits(T.ToTensor())) is not None
    monkeypatch.setattr(MNIST, "__getitem__", logged)
    assert way_to_rows(digits(T.ToTensor())) is None


def test_numbers_of_numpy() -> None:
    dataset = digits(T.ToTensor())
    rows = np.random.default_rng(0).permutation(COUNT)[:32]
    check(lambda: Subset(dataset, rows), is_found=True)


class Colder(MNIST):  # type: ignore[misc]
    def __getitem__(self, index: int) -> Any:
        picture, label = super().__getitem__(index)
        return picture / 2, label


class Held(MNIST):  # type: ignore[misc]
    @property
    def data(self) -> Any:
        return self._data // 2

    @data.setter
    def data(self, data: Any) -> None:
        self._data = data


class Gray:
    """A step of the script's own."""

    def __call__(self, picture: Any) -> Any:
        return picture.point(lambda value: value // 2)


LEFT: dict[str, Callable[[], Any]] = {
    "own class": lambda: made(Colder, T.ToTensor()),
    "property": lambda: made(Held, T.ToTensor()),
    "own step": lambda: digits(Gray(), T.ToTensor()),
    "edges by numpy": lambda: pictures(T.RandomCrop(32, padding=np.int64(4)), T.ToTensor()),
    "colours": lambda: pictures(T.ColorJitter(), T.ToTensor()),
    "own step behind": lambda: digits(T.ToTensor(), torch.nn.Flatten(0)),
    "own kind of step": lambda: digits(type("ToTensor", (T.ToTensor,), {})()),
    "white edges": lambda: digits(T.RandomCrop(28, padding=2, fill=255), T.ToTensor()),
    "labels changed": lambda: digits(T.ToTensor(), target_transform=lambda label: label + 1),
    "labels of another kind": lambda: pictures(
        T.ToTensor(), targets=[float(n) for n in range(COUNT)]
    ),
    "pixels of another kind": lambda: digits(T.ToTensor(), data=torch.zeros(COUNT, 28, 28)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_known_is_left_alone(name: str) -> None:
    if name == "white edges" and T is standins.v1:
        assert way_to_rows(LEFT[name]()) is None  # the stand-in has black ones
        return
    if name == "pixels of another kind" and T is not standins.v1:
        pytest.skip("torchvision makes no pictures of them")
    check(LEFT[name], is_found=False)


def test_a_step_that_is_listened_to_is_left_alone() -> None:
    heard: list[int] = []
    dataset = digits(T.ToTensor())
    step = dataset.transform.transforms[0]
    dataset.transform.transforms.append(type("Normalize", (torch.nn.Identity,), {
        "__module__": "torchvision.transforms.transforms", "__qualname__": "Normalize",
    })())  # fmt: skip
    assert way_to_rows(dataset) is not None
    dataset.transform.transforms[1].register_forward_hook(lambda *_: heard.append(1))
    assert way_to_rows(dataset) is None
    assert step is dataset.transform.transforms[0]


def test_what_changes_later_is_seen() -> None:
    dataset = FOUND["usual"]()
    fetcher = RowsFetcher(dataset, True, default_collate, False)
    plain = RowsFetcher(dataset, True, default_collate, False)
    plain._way = None
    rows = list(range(16))

    def both() -> list[Any]:
        torch.manual_seed(1)
        found = fetcher.fetch(rows)
        then = torch.rand(2)
        torch.manual_seed(1)
        usual = plain.fetch(rows)
        assert torch.equal(torch.rand(2), then)
        assert all(torch.equal(a, b) for a, b in zip(found, usual, strict=True))
        return found  # type: ignore[no-any-return]

    first = both()
    dataset.data = 255 - dataset.data
    dataset.targets[3] = 77
    dataset.transform.transforms[1].p = 1.0
    dataset.transform.transforms[3].mean = (0.1, 0.2, 0.3)
    second = both()
    assert second[1][3] == 77 and not torch.equal(first[0], second[0])
    dataset.transform.transforms.insert(0, Gray())
    both()
    dataset.transform = T.ToTensor()
    assert both()[0].min() >= 0
    torch.set_default_dtype(torch.float64)
    try:
        assert both()[0].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_crop_that_does_not_fit_is_the_error_of_the_script() -> None:
    dataset = pictures(T.RandomHorizontalFlip(), T.RandomCrop(40), T.ToTensor())
    fetcher = RowsFetcher(dataset, True, default_collate, False)
    with pytest.raises(ValueError, match="crop size"):
        fetcher.fetch(list(range(16)))


def test_a_failure_has_drawn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = FOUND["usual"]()
    way = array_pictures.pictures_in_an_array(dataset)
    assert way is not None
    monkeypatch.setattr(array_pictures, "_finished", lambda *_: 1 // 0)
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        way.gather(list(range(8)))
    assert torch.equal(torch.get_rng_state(), before)


def test_loaders_without_workers_read_them_themselves() -> None:
    assert lies_in_memory(DataLoader(FOUND["usual"](), batch_size=16))
    assert not lies_in_memory(DataLoader(LEFT["colours"](), batch_size=16))
