"""Workers that wait: how many, whose they are, and what is worth looking through for them."""

import importlib
import multiprocessing
import os
import subprocess
import sys
import tracemalloc
from collections import UserList
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from slipstream.run.loading import keeping
from slipstream.run.loading.contents import contents
from tests.run.keeping_kit import Drawing, compare, loader_of, passes, with_fix


def pids_of(loader: Any) -> set[int]:
    return {int(pid) for batch in loader for pid in batch[-1]}


def test_only_a_few_crews_wait() -> None:
    def use() -> Any:
        before = len(multiprocessing.active_children())
        loaders = [loader_of(Drawing()) for _ in range(5)]
        for loader in loaders:
            pids = pids_of(loader)
            assert len(multiprocessing.active_children()) - before <= 4
        # The last ones do, and the others begin as without us.
        return pids == pids_of(loaders[-1]), len(pids_of(loaders[0]))

    assert with_fix(use)[0] == (True, 2)


def test_a_forked_process_has_workers_of_its_own_and_leaves_ours_alone() -> None:
    def use() -> Any:
        loader = loader_of(Drawing())
        first = pids_of(loader)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 2 if pids_of(loader) & first else 0
                keeping.forget_all()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        return status, pids_of(loader) == first

    assert with_fix(use)[0] == (0, True)


MAKERS = {
    "random": "import random\nown = random.Random(0)\ndef draw(): return own.random()\n",
    "NumPy": (
        "import numpy as np\nown = np.random.default_rng(0)\ndef draw(): return own.random()\n"
    ),
    "NumPy, as it was": (
        "import numpy as np\nown = np.random.RandomState(0)\ndef draw(): return own.rand()\n"
    ),
    "torch": (
        "import torch\nown = torch.Generator()\ndef draw(): return torch.rand((), generator=own)\n"
    ),
}


class Jittering(Drawing):
    def __init__(self, draw: Callable[[], Any] | None) -> None:
        super().__init__()
        self.draw = draw

    def __getitem__(self, index: int) -> Any:
        return float(self.draw() if self.draw else 0.5), *super().__getitem__(index)


@pytest.mark.parametrize("does_draw", [True, False])
@pytest.mark.parametrize("source", MAKERS.values(), ids=MAKERS)
def test_generators_of_packages_begin_with_every_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, does_draw: bool
) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "jitterpkg.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    draw = importlib.import_module("jitterpkg").draw
    try:
        pids, _ = compare(lambda: passes(loader_of(Jittering(draw if does_draw else None))))
    finally:
        del sys.modules["jitterpkg"]
    assert (pids[0] == pids[1]) != does_draw


SETTINGS = SimpleNamespace(size=1)
PIPELINE: UserList[int] = UserList([1])


@pytest.fixture(autouse=True)
def as_they_were() -> Iterator[None]:
    yield
    SETTINGS.size = 1
    PIPELINE.data = [1]


class Configured(Drawing):
    def __getitem__(self, index: int) -> Any:
        found = SETTINGS.size, len(PIPELINE)
        return *super().__getitem__(index)[:-1], found, os.getpid()


class Growing(Configured):
    """What a worker's own copy of a package's object has become."""

    def __getitem__(self, index: int) -> Any:
        PIPELINE.append(index)
        return super().__getitem__(index)


def set_size(epoch: int) -> None:
    SETTINGS.size = epoch + 5


def grow(epoch: int) -> None:
    PIPELINE.append(epoch)


@pytest.mark.parametrize("change", [set_size, grow])
def test_globals_that_the_script_changes_in_their_place_are_seen(
    change: Callable[[int], None],
) -> None:
    def use() -> Any:
        SETTINGS.size = 1
        PIPELINE.data = [1]
        return passes(loader_of(Configured()), change)

    pids, _ = compare(use)
    assert not pids[0] & pids[1]


def test_what_a_worker_does_to_a_packages_object_is_forgotten_with_it() -> None:
    pids, _ = compare(lambda: passes(loader_of(Growing())))
    assert not pids[0] & pids[1]


def test_with_globals_that_stay_workers_do_too() -> None:
    pids, _ = compare(lambda: passes(loader_of(Configured())))
    assert pids[0] == pids[1] == pids[2]


def of(part: Any) -> Any:
    dataset = Drawing()
    dataset.part = part  # type: ignore[attr-defined]
    return dataset


@pytest.mark.parametrize(
    ("part", "stay"),
    [(np.zeros(20, "M8[s]"), True), (np.zeros((4, 6))[:, ::2], True)],
)
def test_arrays_of_other_kinds_are_no_trouble(part: Any, stay: bool) -> None:
    pids, _ = compare(lambda: passes(loader_of(of(part))))
    assert (pids[0] == pids[1]) is stay


class Refusing:
    """Cannot be asked for its attributes."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            raise KeyError(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("part", [torch.eye(3).to_sparse(), Refusing()], ids=["sparse", "refusing"])
def test_what_cannot_be_watched_gets_new_workers(part: Any) -> None:
    pids, _ = compare(lambda: passes(loader_of(of(part))))
    assert not pids[0] & pids[1]


def test_an_error_of_looking_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*things: Any) -> str:
        raise ValueError("not ours")

    monkeypatch.setattr(keeping, "contents", fail)
    pids, _ = compare(lambda: passes(loader_of(Drawing())))
    assert not pids[0] & pids[1]


def test_what_is_too_much_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(keeping, "contents", lambda *things: calls.append(1) or "")
    pids, _ = compare(lambda: passes(loader_of(Drawing())))
    assert not pids[0] & pids[1]
    assert len(calls) == 1


def test_large_tensors_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    monkeypatch.setattr(torch, "save", lambda *args, **kwargs: saved.append(1))
    large = torch.zeros(1 << 24)
    assert (
        contents(large) == contents({"a": [large[:3]]}) == contents(large.untyped_storage()) == ""
    )
    assert contents(torch.eye(3).to_sparse()) == ""
    assert not saved


def test_large_arrays_are_not_copied() -> None:
    array = np.zeros((1 << 23, 2))[:, 0]
    tracemalloc.start()
    try:
        assert contents(array) == contents([array.T.copy()]) == ""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20  # the copy that the test itself makes


def test_small_ones_are_told_apart() -> None:
    tensor, array = torch.arange(1000), np.arange(1000)
    before = contents(tensor, array)
    assert before and before == contents(tensor, array)
    tensor[5] = -1
    changed = contents(tensor, array)
    array[5] = -1
    assert len({before, changed, contents(tensor, array)}) == 3


@pytest.mark.parametrize("closed_after", [3, 6, None])
def test_workers_that_hold_a_pipe_of_the_script_end_with_the_epoch(
    closed_after: int | None,
) -> None:
    def use() -> Any:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as program:
            loader = loader_of(Drawing())
            assert program.stdin is not None
            for number, _ in enumerate(loader, 1):
                if number == closed_after:
                    program.stdin.close()
            program.stdin.close()
            return program.wait(timeout=20)

    assert with_fix(use)[0] == 0


def test_objects_that_are_pickled_in_a_way_of_their_own_are_not_asked() -> None:
    class Careless(Drawing):
        def __getstate__(self) -> Any:
            state = self.__dict__
            state["weights"] = None
            return state

    dataset = Careless()
    assert contents(dataset) == ""
    assert dataset.weights is not None


def test_workers_are_where_the_script_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def use() -> Any:
        os.chdir(tmp_path)
        return passes(loader_of(Drawing()), lambda _: os.chdir("/"))

    pids, _ = compare(use)
    assert not pids[0] & pids[1]
