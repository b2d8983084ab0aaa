"""`slipstream lint`."""

import json
import os
from pathlib import Path

import pytest

from slipstream.infer.lint.known import RULES
from tests.conftest import Run

FILE = """
import torch
from torch import nn
from parts import SIZE

print("made by the user's file")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(SIZE, 8)
        self.lost = nn.Linear(SIZE, 8)

    def forward(self, x, *, scale):
        return self.used(x) * scale

def make_model():
    return Net()

def make_healthy():
    return nn.Linear(SIZE, 8)
"""
MEASURED = [name for name in RULES if not name.endswith("parameters")]
QUICK = [part for name in MEASURED for part in ("--ignore", name)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "parts.py").write_text("SIZE = 16\n")
    (folder / "net.py").write_text(FILE)
    return folder / "net.py"


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, object]:
    """Another folder than that of the file, one thread, and a narrow terminal."""
    (tmp_path / "elsewhere").mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "80"}
    return {"cwd": tmp_path / "elsewhere", "env": environment}


@pytest.mark.slow
def test_a_users_file_from_another_folder(
    file: Path, elsewhere: dict[str, object], run_cli: Run
) -> None:
    inputs = ["--input", "4x16", "--input", "scale=4x1:float32:1..2"]
    done = run_cli("lint", f"../project/{file.name}:make_model", *inputs, "--seconds", 3,
                   **elsewhere)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Net on cpu with 1 thread, input 4x16, scale=4x1\n")
    assert "unused-parameters\n  2 parameters, 136 numbers or 544 bytes" in done.stdout
    assert "in lost (Net, " in done.stdout
    assert "net.py:8)" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "made by the user's file" not in done.stdout
    assert "made by the user's file" in done.stderr


@pytest.mark.slow
def test_json_and_check(file: Path, elsewhere: dict[str, object], run_cli: Run) -> None:
    given = ["lint", f"{file}:Net", "--input", "x=4x16", "--input", "scale=4x1", *QUICK]
    done = run_cli(*given, "--seconds", 2, "--json", "--check", **elsewhere)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["findings"] == ["unused-parameters"]
    assert told["model_ms"] > 0
    healthy = run_cli(
        "lint", f"{file}:make_healthy", "--input", "4x16", *QUICK, "--seconds", 2, "--check",
        **elsewhere,
    )  # fmt: skip
    assert healthy.returncode == 0, healthy.stderr
    assert "No findings." in healthy.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["net.py:make_model"], "No --input was given"),
        (["net.py:Net", "--input", "4x17"], "Net cannot be called with 4x17: TypeError"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    file: Path, given: list[str], message: str, run_cli: Run
) -> None:
    done = run_cli("lint", *given, cwd=file.parent)
    assert done.returncode == 2
    assert done.stdout == ""
    [*_, last] = done.stderr.strip().splitlines()
    assert last.startswith("slipstream lint: ")
    assert message in last


def test_help_shows_how_a_model_and_its_inputs_are_typed(run_cli: Run) -> None:
    said = " ".join(run_cli("lint", "--help").stdout.split())
    assert "slipstream lint package.models:make_model --input 8x3x224x224" in said
    assert "ids=1x128:int64:0..30521" in said
