"""What the source of a file tells of its names, for lines that a patch may change."""

from pathlib import Path

import pytest
import torch

from slipstream.run.diff.loop import _code_at
from slipstream.run.diff.scope import names_of
from slipstream.run.diff.source import Source
from slipstream.run.evaluating.flow import keeps_to_itself

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch import nn as twice
import torch.nn.functional as twice

criterion = nn.CrossEntropyLoss()
changed = nn.MSELoss()
changed = print
declared = nn.MSELoss()

def count(out, y):
    return (out.argmax(1) == y).sum()

def keep(out):
    global declared
    declared = out

class Meter:
    def update(self, value):
        self.last = value

meter = Meter()

def evaluate(model, batches, given):
    total = 0.0
    for x, y in batches:
        out = model(x.to("cpu"))
        BODY
    return total
"""


def read(folder: Path, body: str = "pass") -> Source:
    path = folder / "train.py"
    path.write_text(SCRIPT.replace("BODY", body))
    return Source(path)


def test_names_that_are_set_once_are_known(tmp_path: Path) -> None:
    names = names_of(read(tmp_path))
    assert names["F"] is torch.nn.functional
    assert type(names["criterion"]) is torch.nn.CrossEntropyLoss
    assert callable(names["count"])
    assert not {"changed", "declared", "meter", "twice"} & set(names)


@pytest.mark.parametrize(
    ("body", "stays"),
    [
        ("total += criterion(out, y).item()", True),
        ("total += F.cross_entropy(out, y).item()", True),
        ("total += count(out, y).item()", True),
        ("meter.update(criterion(out, y).item())", True),
        ("meter.update(criterion(out, y))", False),
        ("total += given(out, y).item()", False),
        ("changed(out, y)", False),
        ("keep(out)", False),
        ("print(out)", False),
    ],
)
def test_only_what_is_known_may_get_a_result(tmp_path: Path, body: str, stays: bool) -> None:
    source = read(tmp_path, body)
    line = source.text[: source.text.index("out = model(")].count("\n") + 1
    code = _code_at(source, line)
    assert code is not None
    found = keeps_to_itself(code, line, {}, names_of(source))
    assert found.stays is stays, found.why_not
