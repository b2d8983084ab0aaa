"""Ways in which settings reach a sample, each of which a watch has to notice, or to refuse."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slipstream.run.loading.long import Long
from slipstream.run.loading.watch import Watch

_BEGIN = """
import builtins, ctypes, functools, os, types
import numpy as np
import torch
size = 1
"""
# What a module has, the statement that changes it, and whether a longer look may be needed.
_WAYS = {
    "function as a key": (
        ("def grow(x): return size\nOPS = {grow: 1.0}\n"
        "def read(i): return [op(i) for op in OPS]"),
        "m.size = 2",
    ),
    "object as a key": (
        ("class Op:\n    size = 1\nOP = Op()\nOPS = {OP: 1.0}\n"
        "def read(i): return [op.size for op in OPS]"),
        "m.OP.size = 2",
    ),
    "large array, all of it": (
        "delta = np.zeros((3, 256, 256), np.float32)\ndef read(i): return delta.sum()",
        "m.delta += 0.25",
    ),
    "large array, turned": (
        ("delta = np.zeros((256, 256, 3), np.float32).transpose(2, 0, 1)\n"
        "def read(i): return delta.sum()"),
        "m.delta += 0.25",
    ),
    "very large array": (
        "delta = np.zeros((3, 2048, 2048), np.float32)\ndef read(i): return delta.sum()",
        "m.delta += 0.25",
    ),
    "large tensor behind .data": (
        "delta = torch.zeros(3, 2048, 2048)\ndef read(i): return delta.sum().item()",
        "m.delta.data += 0.25",
    ),
    "function from text": ("exec('def read(i): return size')", "m.size = 2"),
    "function of the same text": ("read = eval('lambda i: size')", "m.size = 2"),
    "what is registered": (
        ("@functools.singledispatch\ndef read(i): return 0\n"
        "@read.register\ndef _(i: int): return size"),
        "m.size = 2",
    ),
    "defaults": ("def read(i, size=1): return size", "m.read.__defaults__ = (2,)"),
    "defaults by name": (
        "def read(i, *, size=1): return size", "m.read.__kwdefaults__ = {'size': 2}",
    ),
    "code": ("def read(i): return 1\ndef other(i): return 2", "m.read.__code__ = m.other.__code__"),
    "text with an attribute": (
        "class Name(str): pass\nNAME = Name('a')\nNAME.size = 1\ndef read(i): return NAME.size",
        "m.NAME.size = 2",
    ),
    "records with objects": (
        ("rows = np.array([(1, 'a'), (2, 'b')], dtype=[('size', float), ('name', object)])\n"
        "def read(i): return rows['size'].sum()"),
        "m.rows['size'] *= 2",
    ),
    "mask": (
        ("rows = np.ma.array(np.arange(9.0), mask=np.zeros(9, bool))\n"
        "def read(i): return rows.sum()"),
        "m.rows[::2] = np.ma.masked",
    ),
    "kinds in a long list": (
        ("class A:\n    def read(self): return 0\nclass B:\n    def read(self): return size\n"
        "things = [A() for _ in range(300)] + [B() for _ in range(300)]\n"
        "def read(i): return things[-1].read()"),
        "m.size = 2",
    ),
    "module that is made": (
        "config = types.ModuleType('config')\nconfig.size = 1\ndef read(i): return config.size",
        "m.config.size = 2",
    ),
    "module that answers": (
        "import lazy_ways\ndef read(i): return lazy_ways.size",
        "sys.modules['lazy_ways'].VALUES['size'] = 2",
    ),
    "name of all": ("def read(i): return STRENGTH", "builtins.STRENGTH = 2"),
    "attribute of a tensor": (
        "mean = torch.zeros(3)\nmean.size_ = 1\ndef read(i): return mean.size_", "m.mean.size_ = 2",
    ),
    "attribute of an array": (
        ("class Info(np.ndarray): pass\nrows = np.zeros(3).view(Info)\nrows.level = 1\n"
        "def read(i): return rows.level"),
        "m.rows.level = 2",
    ),
    "bound item": (
        "rows = np.zeros(9)\nlook_up = rows.__getitem__\ndef read(i): return look_up(0)",
        "m.rows[0] = 2",
    ),
    "one record": (
        "row = np.ones(1, dtype=[('size', float)])[0]\ndef read(i): return row['size']",
        "m.row['size'] = 2",
    ),
    "attribute of a partial": (
        "read = functools.partial(lambda x, i: read.size, 0)\nread.size = 1", "m.read.size = 2",
    ),
}  # fmt: skip
_REFUSED = {
    "file by its number": (
        "file = os.open(__file__, os.O_RDONLY)\ndef read(i): return os.pread(file, 1, 0)"
    ),
    "function in a ufunc": (
        "noise = np.frompyfunc(lambda x: x + size, 1, 1)\ndef read(i): return noise(i)"
    ),
    "memory of ctypes": (
        "memory = (ctypes.c_double * 4)()\nrows = np.frombuffer(memory)\n"
        "def read(i): return rows[0]"
    ),
}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def import_it(source: str) -> ModuleType:
        (tmp_path / "one_of_many_ways.py").write_text(_BEGIN + source)
        (tmp_path / "lazy_ways.py").write_text(
            "VALUES = {'size': 1}\ndef __getattr__(name):\n"
            "    if name in VALUES: return VALUES[name]\n    raise AttributeError(name)\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        for name in ("one_of_many_ways", "lazy_ways"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr("builtins.STRENGTH", 1, raising=False)
        return importlib.import_module("one_of_many_ways")

    return import_it


@pytest.mark.parametrize(("source", "change"), _WAYS.values(), ids=_WAYS)
def test_a_change_is_seen_however_the_sample_gets_at_it(
    make: Any, source: str, change: str
) -> None:
    m = make(source)
    watch = Watch([m.read])
    assert not watch.why_not and watch.is_same()
    before = m.read(0)
    assert watch.is_same()
    exec("import builtins, sys\nimport numpy as np\n" + change, {"m": m})
    assert m.read(0) != before
    assert not watch.is_same()


@pytest.mark.parametrize("source", _REFUSED.values(), ids=_REFUSED)
def test_what_would_not_show_is_refused(make: Any, source: str) -> None:
    m = make(source)
    m.read(0)
    assert Watch([m.read]).why_not


@pytest.mark.parametrize(
    "ways",
    ["from .conf import size", "from . import conf; size = conf.size",
     "from ways_pack.conf import size", "from ..ways_pack.conf import size"],
)  # fmt: skip
def test_what_a_function_imports_from_its_package_is_seen(
    ways: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = tmp_path / "outer_ways" / "ways_pack" if ".." in ways else tmp_path / "ways_pack"
    pack.mkdir(parents=True)
    for folder in {pack, pack.parent} - {tmp_path}:
        (folder / "__init__.py").write_text("")
    (pack / "conf.py").write_text("size = 1\n")
    (pack / "data.py").write_text(f"def read(i):\n    {ways}\n    return size\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if "ways" in name and "test" not in name]:
        monkeypatch.delitem(sys.modules, name)
    package = "outer_ways.ways_pack" if ".." in ways else "ways_pack"
    data = importlib.import_module(f"{package}.data")
    assert data.read(0) == 1
    watch = Watch([data.read])
    assert not watch.why_not and watch.is_same()
    importlib.import_module(f"{package}.conf").size = 2  # type: ignore[attr-defined]
    assert not watch.is_same()


def test_functions_of_a_module_that_is_looked_through_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ways_ops.py").write_text(
        "LEVELS = {'grow': 1}\ndef grow(x): return x * LEVELS['grow']\n"
    )
    (tmp_path / "ways_data.py").write_text(
        "import ways_ops\nNAMES = ['grow']\n"
        "def read(i):\n    name = NAMES[i]\n    return getattr(ways_ops, name)(1)\n"
        "def other(i): return getattr(ways_ops, 'nothing', 0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ways_ops", "ways_data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    data, ops = map(importlib.import_module, ("ways_data", "ways_ops"))
    watch, other = Watch([data.read]), Watch([data.other])
    assert not watch.why_not and watch.is_same()
    ops.LEVELS["grow"] = 2
    assert not watch.is_same()
    assert other.is_same()


def test_the_row_of_a_view_that_others_write_to_is_looked_at() -> None:
    import numpy as np

    rows = np.zeros((1000, 4))
    view = rows.view()
    view.flags.writeable = False
    long = Long([view], None)
    before = long.entries([7])
    rows[7] = 1
    assert long.entries([7]) != before
