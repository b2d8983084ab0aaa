"""`slipstream optimize` on a user's file."""

import json
from pathlib import Path

import pytest
import torch

from slipstream.infer import load
from tests.conftest import Run

FILE = '''
import time
import torch


class Net(torch.nn.Module):
    """Its batch norm is all there is to gain."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 1)
        self.norm = torch.nn.BatchNorm2d(8)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y)


def make_model():
    return Net()


def score(model, batch):
    return -model(batch).square().mean((1, 2, 3))


def bad(model, batch):
    return {}["score"]


def batches():
    torch.manual_seed(1)
    return [torch.randn(8, 3, 16, 16) for _ in range(30)]
'''


@pytest.mark.slow
def test_a_users_file(tmp_path: Path, run_cli: Run) -> None:
    (tmp_path / "net.py").write_text(FILE)
    done = run_cli(
        "optimize", "net.py:make_model", "--input", "2x3x64x64", "--also", "1x3x64x64",
        "--budget", "25", "--save", "fast", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "eager" in done.stdout and "as it is" in done.stdout
    assert "cuda-graph, compile cudagraphs" in done.stdout
    assert "Stored in fast" in done.stdout
    space: dict[str, object] = {}
    exec(FILE, space)
    model = space["make_model"]().eval()  # type: ignore[operator]
    example = torch.randn(2, 3, 64, 64)
    again = load(tmp_path / "fast", model)  # the model itself, if nothing was surely faster
    torch.testing.assert_close(again(example), model(example), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_task_decides_about_coarser_numbers(tmp_path: Path, run_cli: Run) -> None:
    (tmp_path / "net.py").write_text(FILE)
    done = run_cli(
        "optimize", "net.py:make_model", "--input", "8x3x16x16", "--accuracy", "lossy",
        "--metric", "net.py:score", "--data", "net.py:batches", "--max-drop", "0.1",
        "--budget", "40", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert any(row["drop"] and "160 samples" in row["drop"] for row in rows)
    assert not any("give metric and data" in row["why"] for row in rows)


def test_json(tmp_path: Path, run_cli: Run) -> None:
    (tmp_path / "net.py").write_text(FILE)
    done = run_cli(
        "optimize", "net.py:Net", "--input", "1x3x8x8", "--budget", "0", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["variant"] == "eager"
    assert {row["state"] for row in found["rows"]} == {"model", "skipped"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("net.py:Nothing", "--input", "1x3"), "It has Net, bad, batches, make_model"),
        (("net.py:Net", "--input", "1y3"), "is no shape"),
        (("net.py:Net", "--input", "1x3x8x8", "--save", "net.py"), "expected a folder"),
        (
            ("net.py:Net", "--input", "1x3x8x8", "--accuracy", "int8"),
            "expected exact, mixed, lossy",
        ),
        (
            ("net.py:Net", "--input", "1x3x8x8", "--accuracy", "lossy"),
            "give --metric file.py:score",
        ),
        (("net.py:Net", "--input", "1x3x8x8", "--metric", "net.py:score"), "and --data"),
        (("net.py:Net", "--input", "1x3x8x8", "--also", "y=1x3"), "y=1x3 is no argument"),
        (
            ("net.py:Net", "--input", "1x3x8x8", "--metric", "net.py:time", "--data", "net.py:no"),
            "expected a function for the metric",
        ),
        (
            (
                "net.py:Net",
                "--input",
                "1x3x8x8",
                "--metric",
                "net.py:bad",
                "--data",
                "net.py:batches",
            ),
            "metric failed with the model itself and the first batch: KeyError",
        ),
        (
            ("net.py:Net", "--input", "1x4x8x8"),
            "fails itself with inputs of (1, 4, 8, 8): RuntimeError",
        ),
    ],
)
def test_what_cannot_work_is_told(
    tmp_path: Path, run_cli: Run, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "net.py").write_text(FILE)
    done = run_cli("optimize", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
