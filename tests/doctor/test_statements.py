"""What a line does, without a look at more than the line."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from slipstream.doctor.record.statements import accumulation_of, describe_statements

SCRIPT = """
import time, copy
import numpy as np
import torch
from time import sleep
for x in data:
    np.linalg.svd(x)
    sleep(1)
    h = torch.relu(x @ w); logits = h @ w
    z = x * 2
    names = sorted(words)
    print(names)
    with path.open("w") as file:
        file.write("x")
    best = copy.deepcopy(model.state_dict())
    for p in model.parameters():
        p.mul_(2)
    m = torch.zeros(3).to(device)
    loss.backward()
    total += loss
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    module = ModuleType("train")
    module.__file__ = str(path)
    for line in SCRIPT.splitlines():
        if line.startswith(("import", "from")):
            exec(line, vars(module))
    monkeypatch.setitem(sys.modules, "train", module)
    return str(path)


@pytest.mark.parametrize(
    ("line", "does"),
    [
        (7, {"arrays"}), (8, {"sleeps"}), (9, {"torch", "other"}), (10, {"other"}),
        (11, {"python"}), (12, {"writes"}), (13, {"writes"}), (14, {"writes"}), (15, {"state"}),
    ],
)  # fmt: skip
def test_a_line_is_known_by_what_it_calls(script: str, line: int, does: set[str]) -> None:
    place = f"{script}:{line}"
    assert set(describe_statements([place])[place]["does"]) == does


def test_a_loop_over_parameters_is_known_by_its_head(script: str) -> None:
    place = f"{script}:17"
    assert describe_statements([place])[place]["over_parameters"] == f"{script}:16"


def test_a_tensor_made_on_the_spot_is_known(script: str) -> None:
    place = f"{script}:18"
    assert describe_statements([place])[place]["builds"]


def test_a_loss_added_up_with_its_graph_is_found(script: str) -> None:
    assert accumulation_of(f"{script}:19") == f"{script}:20"


def test_no_source_is_no_error() -> None:
    assert describe_statements(["nowhere.py:3", "", "x"]) == {}
    assert accumulation_of("nowhere.py:3") is None


def test_names_are_those_that_the_file_imports_where_it_is_no_module(tmp_path: Path) -> None:
    path = tmp_path / "gone.py"
    path.write_text(
        "import os, shutil as sh\nimport os.path\nfrom time import sleep as wait\n"
        "wait(1)\nos.replace(a, b)\nsh.move(a, b)\nname.replace(a, b)\nunknown.sleep(1)\n"
    )
    places = [f"{path}:{line}" for line in range(4, 9)]
    found = describe_statements(places)
    assert [found[place]["does"] for place in places] == [
        ["sleeps"], ["moves"], ["moves"], ["other"], ["other"],
    ]  # fmt: skip
