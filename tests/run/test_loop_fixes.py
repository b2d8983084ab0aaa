"""The fixes of a loop, all at once, in scripts that `slipstream run` runs."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from tests.conftest import Run

SICK = """
import gc, os, zipfile
import numpy as np, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HERE = os.path.dirname(os.path.abspath(__file__))

class Archive(Dataset):
    def __init__(self, first, count): self.first, self.count = first, count
    def __len__(self): return self.count
    def __getitem__(self, i):
        with zipfile.ZipFile(HERE + "/a.zip") as archive:
            raw = archive.read(f"{self.first + i}.raw")
        return torch.frombuffer(bytearray(raw), dtype=torch.float32), i % 4

def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        out = model(x)
        total += nn.functional.cross_entropy(out, y).item()
    return total / len(loader)

def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(192, 400), nn.ReLU(), nn.Linear(400, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    train, test = DataLoader(Archive(0, 48), 4, shuffle=True), DataLoader(Archive(100, 16), 4)
    seen = torch.zeros(5 << 20)
    for epoch in range(3):
        model.train()
        for x, y in train:
            optimizer.zero_grad(set_to_none=False)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            gc.collect()
            torch.save({"model": model.state_dict(), "seen": seen}, HERE + "/last.pt")
        print(epoch, evaluate(model, test).hex())

main()
"""
HEALTHY = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    optimizer.zero_grad()
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
print(float(model.weight.sum()).hex())
"""
OURS = (
    "file-handles", "non-blocking-copies", "deferred-values", "zero-grad", "contiguous-inputs",
    "inference-mode", "garbage-pauses", "empty-cache", "async-save",
)  # fmt: skip


def run(run_cli: Run, folder: Path, source: str) -> tuple[str, dict[str, dict[str, Any]], str]:
    """What the script printed, what became of each fix, and what was checked."""
    script = folder / "train.py"
    script.write_text(dedent(source))
    report = folder / "r.json"
    done = run_cli(
        "run", "--only", ",".join(OURS), "--report", report, script, cwd=folder, timeout=280
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    return done.stdout, {fix["fix"]: fix for fix in found["fixes"]}, found["checked"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sick_script_gets_them_and_does_the_same(run_cli: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(1500):
            archive.writestr(f"{number}.raw", torch.randn(192).numpy().tobytes())
    printed, fixes, checked = run(run_cli, tmp_path, SICK)
    wanted = ("file-handles", "zero-grad", "inference-mode", "empty-cache", "async-save")
    assert {name: fixes[name]["state"] for name in wanted} == dict.fromkeys(wanted, "applied")
    assert "equal, bit for bit" in checked
    fixed = (tmp_path / "last.pt").read_bytes()
    plain = run_plain(tmp_path)
    assert printed == plain
    assert fixed == (tmp_path / "last.pt").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_healthy_script_is_left_alone(run_cli: Run, tmp_path: Path) -> None:
    printed, fixes, _ = run(run_cli, tmp_path, HEALTHY)
    assert {fixes[name]["state"] for name in OURS} == {"skipped"}
    assert printed == run_plain(tmp_path)


def run_plain(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout
