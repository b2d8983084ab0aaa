"""Models and inputs from the command line."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from slipstream.cli.model_target import load_model, parse_inputs
from slipstream.errors import UsageError

FILE = """
import argparse, sys
import torch
from torch import nn
from beside import WIDTH

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2)
    @classmethod
    def small(cls):
        return cls()
    def forward(self, x):
        return self.layer(x)

class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()

ready = Net()
number = 3

def make_model(width=4):
    return Net()

def make_two():
    return Net(), Net()

def make_nothing():
    pass

def fails():
    raise ValueError("no weights here\\nsecond line")

def leaves():
    sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder; what is imported from it is forgotten behind the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    package = tmp_path / "pkg" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "user_nets.py").write_text(FILE)
    (tmp_path / "beside.py").write_text("WIDTH = 4\n")
    (package / "made.py").write_text("from torch import nn\n\ndef net():\n    return nn.ReLU()\n")
    (package / "relative.py").write_text("from .made import net\n")
    (tmp_path / "asks.py").write_text("import no_such_package_of_mine\n")
    (tmp_path / "torn.py").write_text("def half(:\n")
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__spec__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["Net", "Net.small", "ready", "make_model"])
def test_a_file_from_another_folder(
    folder: Path, name: str, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    model = load_model(f"{folder}/user_nets.py:{name}")
    assert model(torch.ones(1, 4)).shape == (1, 2)


def test_a_file_by_a_relative_path_and_a_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert isinstance(load_model("pkg/inner/made.py:net"), torch.nn.ReLU)
    assert isinstance(load_model("pkg.inner.made:net"), torch.nn.ReLU)
    assert isinstance(load_model("user_nets:ready"), torch.nn.Module)


def test_a_file_with_the_name_of_something_imported(folder: Path) -> None:
    (folder / "torch.py").write_text("raise RuntimeError\n")
    (folder / "json.py").write_text("from torch import nn\nmodel = nn.ReLU()\n")
    assert isinstance(load_model(f"{folder}/json.py:model"), torch.nn.ReLU)
    assert sys.modules["torch"] is torch


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("user_nets.py", "'user_nets.py' names no model.*such as model.py:make_model"),
        ("user_nets:", "names no model. Expected package.module:name"),
        ("missing.py:net", "missing.py does not exist"),
        ("pkg/inner:net", "pkg/inner is a folder"),
        ("missing.inner:net", "no module missing in .* or among what is installed"),
        ("pkg.missing:net", r"no module pkg\.missing"),
        ("user_nets.py:nets", "has no nets. It has Net, Wide, fails, leaves, make_model"),
        ("user_nets.py:Net.large", "has no Net.large"),
        ("user_nets.py:number", "is an int; expected a module"),
        ("user_nets.py:Wide", "without arguments: missing a required argument: 'width'"),
        ("user_nets.py:make_two", "gives a tuple; expected a torch.nn.Module"),
        ("user_nets.py:make_nothing", "gives None"),
        (
            "user_nets.py:fails",
            r"fails failed: ValueError: no weights here \(.*user_nets.py:34\)$",
        ),
        ("user_nets.py:leaves", r"leaves failed: SystemExit: 3 \(.*user_nets.py:37\)"),
        ("asks.py:net", "cannot be imported: ModuleNotFoundError: .*no_such_package_of_mine"),
        (
            "pkg/inner/relative.py:net",
            "relative import.*It is a part of a package: give package.module",
        ),
        ("asks:net", "asks cannot be imported: ModuleNotFoundError.*asks.py:1"),
        ("torn.py:half", "torn.py cannot be imported: SyntaxError: .*torn.py, line 1"),
        ("torn:half", r"torn cannot be imported: SyntaxError: .*torn.py, line 1\)$"),
    ],
)
def test_what_is_wrong_with_a_target_is_said(
    folder: Path, target: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=message):
        load_model(target)


def test_shapes_types_and_ranges() -> None:
    before = torch.get_rng_state()
    found = parse_inputs(
        ["2x3", "4:float16", "ids=50x40:int64:5..9", "mask=2x2:bool:1..1", "t=scalar:int32:3..3",
         "picture=9x9:float32:-1..0.5"]
    )  # fmt: skip
    assert torch.equal(before, torch.get_rng_state())
    assert [(tuple(t.shape), t.dtype) for t in found.args] == [
        ((2, 3), torch.float32), ((4,), torch.float16)
    ]  # fmt: skip
    assert found.kwargs["ids"].unique().tolist() == [5, 6, 7, 8, 9]
    assert found.kwargs["mask"].all()
    assert found.kwargs["mask"].dtype == torch.bool
    assert found.kwargs["t"].shape == ()
    assert found.kwargs["t"].item() == 3
    picture = found.kwargs["picture"]
    assert -1 <= picture.min() < 0 < picture.max() <= 0.5
    again = parse_inputs(["2x3", "4:float16"])
    assert torch.equal(again.args[0], found.args[0]), "always the same"
    assert parse_inputs(["7:bool"]).args[0].dtype == torch.bool


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "No --input was given"),
        (["8,3"], "'8,3' is no shape"),
        (["8x"], "'8x' is no shape. Expected sizes of 1 or more with x between them"),
        (["0x3"], "'0x3' is no shape"),
        (["8x3:float"], "'float' is no type of numbers. Expected float32"),
        (["8x3:int64"], r"whole numbers need a range.*8x3:int64:0\.\.999"),
        (["8:int64:999"], "'999' is no range"),
        (["8:int64:9..1"], r"'9\.\.1' is no range. Expected two whole numbers, the lower first"),
        (["8:int64:0..1.5"], "is no range"),
        (["8:int8:0..300"], "int8 holds numbers from -128 to 127"),
        (["a b=8"], "expected [NAME=]SHAPE"),
        (["8:int64:0..1:2"], "expected [NAME=]SHAPE"),
        (["x=8", "x=9"], "the argument x was given before"),
        (["900000x900000x9000"], "cannot be made"),
    ],
)
def test_what_is_wrong_with_an_input_is_said(texts: list[str], message: str) -> None:
    pattern = re.escape(message) if "[" in message else message
    with pytest.raises(UsageError, match=pattern):
        parse_inputs(texts)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="--input 8x3 cannot be put on cuda"):
        parse_inputs(["8x3"], "cuda")
