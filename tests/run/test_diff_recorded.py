"""Patches made of what the doctor has really recorded of a script."""

import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.doctor.capture import load_capture
from slipstream.launch import Target
from slipstream.run.diff.make import make_patch
from slipstream.run.diff.unified import unified
from slipstream.run.diff.workspace import Workspace
from slipstream.run.situation import diagnosed

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

_SCRIPT = """\
import gc
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(320, 64))
objects = [[number] for number in range(200_000)]


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for (x,) in loader:
        y = model(x)  # all of them
        total += y.sum().item()
    model.train()
    return total


def main():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x,) in enumerate(DataLoader(data, 8, shuffle=True)):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        gc.collect()
        print(loss.item().hex())
        if step % 4 == 0:
            print(evaluate(model, DataLoader(data, 64)).hex())


if __name__ == "__main__":
    main()
"""


def python(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lines_that_were_recorded_are_changed_and_losses_stay(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    before = python(
        tmp_path, "-m", "slipstream", "doctor", "--full", "--capture", "capture.json", "train.py"
    )
    situation = diagnosed(load_capture(tmp_path / "capture.json"), tmp_path)
    names = ["zero-grad", "inference-mode", "garbage-pauses", "empty-cache"]
    patch = make_patch(names, Workspace(Target("train.py"), tmp_path), situation)
    text = unified(patch.before, patch.after, tmp_path.resolve())
    changed = [line for line in text.splitlines()[2:] if line[0] in "+-" and line != "+"]
    assert changed == [
        "+import slipstream",
        '+slipstream.speed_up("garbage-pauses", "empty-cache")',
        "-        y = model(x)  # all of them",
        "+        with torch.no_grad():",
        "+            y = model(x)  # all of them",
        "-        optimizer.zero_grad(set_to_none=False)",
        "+        optimizer.zero_grad()",
    ]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=text.encode(), check=True)
    assert python(tmp_path, "train.py") == before
    # What was recorded of the optimizer leads to the line that makes it.
    (tmp_path / "train.py").write_text(_SCRIPT)
    patch = make_patch(["fused-optimizer"], Workspace(Target("train.py"), tmp_path), situation)
    (after,) = patch.after.values()
    assert after in (
        _SCRIPT.replace("lr=1e-3)", "lr=1e-3, foreach=True)"),
        _SCRIPT.replace("lr=1e-3)", "lr=1e-3, fused=True)"),
    )
