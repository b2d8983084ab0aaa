"""What a watch notices, what it says of itself, and that nothing it meets makes it raise."""

import argparse
import array
import ctypes
import datetime
import functools
import importlib
import io
import itertools
import logging
import mmap
import multiprocessing
import random
import re
import sys
import weakref
from collections import UserList
from collections.abc import Callable
from dataclasses import dataclass
from os import stat
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from slipstream.run.loading.watch import Watch

OPTIONS = argparse.Namespace(size=1, sizes=[1])
SPACE = SimpleNamespace(size=1)
PIPELINE = UserList([1])


@dataclass(slots=True)
class Setting:
    size: int
    sizes: list[int]


SETTING = Setting(1, [1])


class Config(dict[str, int]):
    size = 1


CONFIG = Config()
CONFIG.size = 2


def read(index: int) -> Any:
    return OPTIONS.size, SPACE.size, SETTING.size, CONFIG.size


def read_late(index: int) -> Any:
    try:
        return LATE  # type: ignore[name-defined]
    except NameError:
        return None


def read_attribute(record: Any) -> Any:
    return record.LATE


def read_pipeline(index: int) -> Any:
    return PIPELINE[0]


CHANGES: dict[str, Callable[[], Any]] = {
    "Namespace": lambda: setattr(OPTIONS, "size", OPTIONS.size + 1),
    "deeper": lambda: OPTIONS.sizes.append(1),
    "SimpleNamespace": lambda: setattr(SPACE, "more", 1),
    "slots": lambda: setattr(SETTING, "size", SETTING.size + 1),
    "in a slot": lambda: SETTING.sizes.append(1),
    "attribute of a dict": lambda: setattr(CONFIG, "size", CONFIG.size + 1),
    "item of a dict": lambda: CONFIG.update(a=len(CONFIG)),
    "attribute of a function": lambda: setattr(read, "size", getattr(read, "size", 0) + 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_settings_of_the_script_are_seen(change: Callable[[], Any]) -> None:
    watch = Watch([read])
    assert not watch.why_not and watch.is_same()
    change()
    assert not watch.is_same()


def test_a_name_that_comes_later_is_seen_and_an_attribute_of_that_name_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late, attribute = Watch([read_late]), Watch([read_attribute])
    monkeypatch.setitem(globals(), "LATE", 3)
    assert not late.is_same()
    assert attribute.is_same()


def test_a_module_that_is_imported_in_a_function_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner_settings.py").write_text("size = 1\n")
    (tmp_path / "inner_data.py").write_text(
        "def read(index):\n    from inner_settings import size\n    return size\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data, settings = map(importlib.import_module, ("inner_data", "inner_settings"))
    watch = Watch([data.read])
    settings.size = 2
    assert not watch.is_same()


@pytest.mark.parametrize(
    "look",
    [
        'getattr(settings, "size", 0)', 'vars(settings)["size"]', 'settings.__dict__["size"]',
        'operator.attrgetter("size")(settings)', "getattr(settings, NAME)",
        'importlib.import_module("by_string_settings").size', 'globals()["own"]', 'eval("own + 1")',
        'getattr(sys.modules["by_string_settings"], "si" + "ze")', 'getattr(settings, "late", 0)',
    ],
)  # fmt: skip
def test_what_is_looked_up_by_a_string_is_seen(
    look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "by_string_settings.py").write_text("size = 1\n")
    (tmp_path / "by_string_data.py").write_text(
        "import importlib, operator, sys\nimport by_string_settings as settings\n"
        f"NAME, own, x = 'size', 1, 0\ndef read(index):\n    return {look}, 'x'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "by_string_settings", raising=False)
    monkeypatch.delitem(sys.modules, "by_string_data", raising=False)
    data, settings = map(importlib.import_module, ("by_string_data", "by_string_settings"))
    watch = Watch([data.read])
    assert not watch.why_not and watch.is_same()
    data.other = 1
    assert watch.is_same()
    before = data.read(0)
    settings.size, settings.late, data.own = 2, 1, 2
    assert data.read(0) != before
    assert not watch.is_same()


def test_names_of_fields_are_no_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop at the top of a script has variables called like them."""
    watch = Watch([read_field])
    monkeypatch.setitem(globals(), "image", 3)
    assert watch.is_same()


def read_field(index: int) -> Any:
    return {"image": index}


class Kind(type):
    level = 1


class OfKind(metaclass=Kind):
    pass


def read_kind(index: int) -> Any:
    return OfKind.level


def test_what_a_class_has_from_its_own_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch([read_kind])
    assert not watch.why_not and watch.is_same()
    monkeypatch.setattr(Kind, "level", 2)
    assert not watch.is_same()


def test_objects_of_packages_are_named() -> None:
    found = Watch([read_pipeline]).foreign
    assert [thing for thing in found if thing is PIPELINE]
    assert not Watch([read]).foreign


@pytest.mark.parametrize("hold", [list, lambda made: {"transform": made[0]}])
def test_a_generator_in_a_function_that_a_packages_object_holds_is_found(
    hold: Callable[[list[Any]], Any],
) -> None:
    """As Hugging Face's datasets hold what `set_transform` is given."""
    random = np.random.default_rng(0)
    package = type("Table", (), {"__module__": "numpy.tables"})()
    package._format = hold([lambda rows: [random.random() for _ in rows]])
    assert "random generator of its own" in Watch([package]).why_not
    package._format = hold([lambda rows: rows])
    assert not Watch([package]).why_not


def mapped(tmp_path: Path, *, write: bool) -> Any:
    (tmp_path / "mapped").write_bytes(bytes(1 << 15))
    with (tmp_path / "mapped").open("r+b" if write else "rb") as file:
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        return mmap.mmap(file.fileno(), 0, access=access)


class Notes(io.StringIO):
    pass


def close(held: Any) -> None:
    if isinstance(held, io.IOBase) and held is not sys.__stdout__:
        held.close()


def closed(path: Path) -> Any:
    with (path / "log").open("w") as file:
        return file


def opened(path: Path, mode: str, name: str = "data") -> Any:
    (path / name).write_bytes(b"abc")
    return (path / name).open(mode)


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "iterator": (lambda _: iter([1]), "iterator"),
    "count": (lambda _: itertools.count(), "iterator"),
    "generator function": (lambda _: (n for n in range(3)), "iterator"),
    "of C": (lambda _: Image.new("L", (2, 2)).im, "nobody can look"),
    "picture": (lambda _: Image.new("L", (2, 2)), "nobody can look"),
    "method of a generator": (lambda _: random.Random(0).random, "random generator"),
    "raw value": (lambda _: multiprocessing.RawValue("i", 0), "may write to"),
    "structure": (lambda _: (ctypes.c_int * 3)(), "it holds "),
    "shared tensor": (lambda _: torch.zeros(3).share_memory_(), "shared memory"),
    "mapped for writing": (lambda path: mapped(path, write=True), "may write to"),
    "array mapped for writing": (
        lambda path: np.memmap(path / "a", np.uint8, "w+", shape=9), "mapped for writing",
    ),
    "large bytearray": (lambda _: bytearray(1 << 20), "large"),
    "text in memory": (lambda _: io.StringIO("a"), "may write"),
    "file to write": (lambda path: (path / "log").open("w"), "open for writing"),
    "file to read and write": (lambda path: (path / "log").open("w+b"), "open for writing"),
    "unbuffered": (lambda path: (path / "log").open("wb", buffering=0), "open for writing"),
    "question by its name": (lambda _: stat, "os.stat by a name of its own"),
    "class of text in memory": (lambda _: Notes(), "may write"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_what_may_change_unseen_is_refused(
    tmp_path: Path, make: Callable[[Path], Any], why: str
) -> None:
    held = make(tmp_path)
    assert why in Watch([{"held": held}]).why_not
    close(held)


LOGGER = logging.getLogger(__name__)
SETTLED: dict[str, Callable[[Path], Any]] = {
    "logger": lambda _: LOGGER,
    "pattern": lambda _: re.compile("a"),
    "date": lambda _: datetime.datetime(2026, 1, 1),
    "object": lambda _: object(),
    "function of NumPy": lambda _: np.add,
    "method of text": lambda _: "a".join,
    "mapped for reading": lambda path: mapped(path, write=False),
    "file to read": lambda path: opened(path, "rb"),
    "text to read": lambda path: opened(path, "r"),
    "file that is closed": closed,
    "output": lambda _: sys.__stdout__,
    "pool of names": lambda _: MappingProxyType({"a": [1]}),
    "index of pandas": lambda _: pd.Index([1, 2]),
    "times of pandas": lambda _: pd.date_range("2026", periods=3).array,
    "text of pandas": lambda _: pd.Series(["a", "b"]).array,
    "categories": lambda _: pd.Categorical(["a", "b"]),
    "numbers that may miss": lambda _: pd.array([1, None]),
}


@pytest.mark.parametrize("make", SETTLED.values(), ids=SETTLED)
def test_objects_of_packages_are_watched_or_do_not_change(
    tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    held = make(tmp_path)
    watch = Watch([{"held": held}])
    assert not watch.why_not
    assert watch.is_same() and watch.is_same_throughout()
    close(held)


class Columns:
    """As a package has it."""

    __module__ = "collections"
    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names = ["a"]


def rename(columns: Any) -> None:
    columns.names = ["b"]


WITHIN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "UserList": (lambda: UserList([1]), lambda held: held.append(2)),
    "slot": (Columns, rename),
    "in a slot": (Columns, lambda held: held.names.append("b")),
    "array.array": (lambda: array.array("d", [1.0]), lambda held: held.append(2.0)),
    "bytearray": (lambda: bytearray(3), lambda held: held.__setitem__(1, 1)),
    "BytesIO": (lambda: io.BytesIO(b"abc"), lambda held: held.write(b"x")),
    "frame": (lambda: pd.DataFrame({"a": [1, 2]}), lambda held: held.at.__setitem__((0, "a"), 5)),
    "column": (lambda: pd.DataFrame({"a": [1]}), lambda held: held.__setitem__("b", [2])),
    "series": (lambda: pd.Series([1.5, 2.5]), lambda held: held.__setitem__(0, 9.0)),
    "text": (lambda: pd.Series(["a", "b"]), lambda held: held.__setitem__(0, "c")),
    "missing": (lambda: pd.Series(pd.array([1, None])), lambda held: held.__setitem__(1, 3)),
    "category": (
        lambda: pd.Series(pd.Categorical(["a", "b"])), lambda held: held.__setitem__(0, "b"),
    ),
    "tensor": (lambda: torch.zeros(3), lambda held: held.data.fill_(1)),
    "complex tensor": (lambda: torch.zeros(3, dtype=torch.complex64).conj(),
                       lambda held: held.data.fill_(1)),
    "no number of dimensions": (lambda: torch.zeros(()), lambda held: held.data.fill_(1)),
    "strided": (lambda: torch.zeros(6, 6)[::2, ::3], lambda held: held.data.fill_(1)),
}  # fmt: skip


@pytest.mark.parametrize(("make", "change"), WITHIN.values(), ids=WITHIN)
def test_changes_within_objects_of_packages_are_seen(
    make: Callable[[], Any], change: Callable[[Any], Any]
) -> None:
    held = make()
    watch = Watch([{"held": held}])
    assert not watch.why_not
    assert watch.is_same_throughout()
    change(held)
    assert not watch.is_same_throughout()


@pytest.mark.parametrize("mode", ["r", "rb"])
@pytest.mark.parametrize("text", ["xyz", "abcd"])
def test_a_file_that_is_open_and_written_anew_is_seen(tmp_path: Path, mode: str, text: str) -> None:
    with opened(tmp_path, mode) as file:
        watch = Watch([{"held": file}])
        assert not watch.why_not and watch.is_same()
        with (tmp_path / "data").open("r+") as own:
            own.write(text)
        assert not watch.is_same()


MAPS: dict[str, Callable[[Path], Any]] = {
    "memmap": lambda path: np.memmap(path, np.uint8, "r"),
    "copied when written": lambda path: np.memmap(path, np.uint8, "c"),
    "array": lambda path: np.asarray(np.memmap(path, np.uint8, "r")),
    "from a buffer": lambda path: np.frombuffer(mapped(path.parent, write=False), np.uint8),
    "map": lambda path: mapped(path.parent, write=False),
    "tensor": lambda path: torch.from_numpy(np.memmap(path, np.uint8, "c")),
    "file": lambda path: opened(path.parent, "rb", name="mapped"),
}


@pytest.mark.parametrize("make", MAPS.values(), ids=MAPS)
def test_files_that_the_script_maps_for_writing_are_not_read_ahead(
    make: Any, tmp_path: Path
) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(bytes(1 << 15))
    (tmp_path / "other").write_bytes(bytes(1 << 15))
    held = make(path)
    path.write_bytes(bytes(1 << 15))
    kept = np.memmap(tmp_path / "other", np.uint8, "r+")
    watch = Watch([{"held": held}])
    assert not watch.why_not and watch.is_same()
    writer = np.memmap(path, np.uint8, "r+")
    assert not watch.is_same()
    assert "open for writing" in Watch([{"held": held}]).why_not
    del writer, kept
    watch = Watch([{"held": held}])
    assert not watch.why_not
    with path.open("r+b") as file:
        file.write(b"something")
    assert not watch.is_same()
    close(held)


class Trainer:
    """Whoever refers to it, weakly or not, sees its step."""

    def __init__(self) -> None:
        self.step = 0

    def read(self) -> int:
        return self.step


WEAK: dict[str, Callable[[Trainer], Any]] = {
    "reference": weakref.ref,
    "proxy": weakref.proxy,
    "method": lambda trainer: weakref.WeakMethod(trainer.read),
    "set": lambda trainer: weakref.WeakSet([trainer]),
    "values": lambda trainer: weakref.WeakValueDictionary({1: trainer}),
    "keys": lambda trainer: weakref.WeakKeyDictionary({trainer: 1}),
}


@pytest.mark.parametrize("refer", WEAK.values(), ids=WEAK)
def test_objects_that_are_referred_to_weakly_are_looked_at_or_refused(refer: Any) -> None:
    trainer = Trainer()
    held = {"weak": refer(trainer)}
    assert "refers weakly" in Watch([held]).why_not
    watch = Watch([{**held, "strong": trainer}])
    assert not watch.why_not and watch.is_same()
    trainer.step += 1
    assert not watch.is_same()


def test_what_ends_with_an_object_and_references_that_have_ended_are_no_hindrance() -> None:
    trainer = Trainer()
    ended = weakref.ref(Trainer())
    watch = Watch([{"end": weakref.finalize(trainer, print), "ended": ended}])
    assert not watch.why_not and watch.is_same()


def plain(index: int) -> Any:
    return index


@functools.wraps(plain)
def wrapper(index: int) -> Any:
    return plain(index) + OPTIONS.size


def test_a_function_that_wraps_another_is_looked_into() -> None:
    watch = Watch([wrapper])
    OPTIONS.size += 1
    assert not watch.is_same()


ARRAYS: dict[str, Callable[[], Any]] = {
    "times": lambda: np.zeros(20, "M8[s]"),
    "backwards": lambda: np.zeros(20)[::-1],
    "columns": lambda: np.zeros((4, 6))[:, ::2],
    "Fortran": lambda: np.zeros((4, 6), order="F"),
    "scalar": lambda: np.zeros(()),
    "records": lambda: np.zeros(3, [("x", "<i4"), ("y", "<f8")]),
    "objects": lambda: np.array([0, "a", None], dtype=object),
    "text": lambda: np.array(["0", "a"]),
}


@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_arrays_of_all_kinds_are_looked_at(make: Callable[[], Any]) -> None:
    array = make()
    watch = Watch([{"array": array}])
    assert not watch.why_not and watch.is_same_throughout()
    array[(0,) * array.ndim] = 5
    assert not watch.is_same()


@pytest.mark.parametrize("array", [np.zeros(0), np.zeros(3, "V0"), np.zeros((3, 0, 2), "M8[D]")])
def test_arrays_of_nothing_do_no_harm(array: Any) -> None:
    watch = Watch([array])
    assert not watch.why_not and watch.is_same_throughout()


def test_tensors_that_cannot_be_watched_are_refused() -> None:
    assert "not plain" in Watch([[torch.eye(3).to_sparse()]]).why_not


class Raising:
    def __init__(self) -> None:
        self.calls = 0

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise ValueError("not yours")


class Shy(dict[str, int]):
    broken = False

    def values(self) -> Any:
        if self.broken:
            raise ValueError("not now")
        return super().values()


def test_errors_of_what_is_looked_at_are_no_errors_of_the_watch() -> None:
    assert "ValueError" in Watch([Raising.__new__(Raising)]).why_not
    shy = Shy(a=1)
    watch = Watch([shy])
    assert watch.is_same()
    Shy.broken = True
    assert not watch.is_same()
    Shy.broken = False


def frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


PARTS: dict[str, Any] = {
    "few": [1, [2, "a"], {"b": (3,)}],
    "long": [(f"{k}.jpg", k) for k in range(300)],
    "long tuple": tuple(range(300)),
    "long dict": {k: str(k) for k in range(300)},
    "long of lists": [[k] for k in range(300)],
    "long of tuples of lists": [("a", [k]) for k in range(300)],
    "small array": np.zeros(8),
    "array": np.zeros(1 << 14),
    "large array": np.zeros((1 << 21) + 1),
    "read-only array": frozen(np.zeros((1 << 21) + 1)),
    "view of a writable array": frozen(np.zeros((1 << 21) + 2)[1:]),
    "of bytes": np.frombuffer(bytes(1 << 25), np.uint8),
    "tensor": torch.zeros(1 << 14),
}


@pytest.mark.parametrize("thing", PARTS.values(), ids=PARTS)
def test_what_nobody_changes_is_the_same(thing: Any) -> None:
    watch = Watch([thing])
    assert not watch.why_not
    assert watch.is_same() and watch.is_same_throughout()


def test_an_item_put_in_the_place_of_another_is_seen_by_the_longer_look() -> None:
    items = [(str(k), k) for k in range(1000)]
    watch = Watch([items])
    for k in range(50):
        items[500] = ("other", k)
    assert watch.is_same() and not watch.is_same_throughout()
