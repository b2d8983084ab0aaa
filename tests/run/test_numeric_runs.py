"""Fixes that may change numbers, from end to end: a script that each helps, and one that it leaves
alone.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.run.test_whole_runs import run, state_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

# A sample takes as long as a file on a server, and no core.
SLOW_SAMPLES = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep({seconds})
        x = torch.full((8,), index / 4096.0) + 0.01 * torch.rand(8)
        return x, x.sum()

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for step, (x, y) in enumerate(DataLoader(Samples(), batch_size=8, num_workers=2)):
    loss = (model(x)[:, 0] - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 150:
        break
    time.sleep(0.002)
"""

ONE_THREAD = """
import torch

torch.manual_seed(0)
torch.set_num_threads({threads})
model = torch.nn.Sequential(*[torch.nn.Linear(384, 384) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
x = torch.randn(512, 384)
for step in range(150):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def tried(folder: Path, fix: str, script: str, *options: str) -> tuple[Any, dict[str, Any]]:
    return run(folder, "--allow", "numeric", "--only", fix, *options, script=script)


def test_workers_that_never_rest_get_company(tmp_path: Path) -> None:
    script = SLOW_SAMPLES.replace("{seconds}", "0.006")
    done, result = tried(tmp_path, "more-workers", script)
    assert done.returncode == 0, done.stderr
    assert state_of(result, "more-workers") == "applied", result["fixes"]
    assert result["ratio"]["low"] > 1.2
    said = next(entry for entry in result["fixes"] if entry["fix"] == "more-workers")
    assert "instead of 2" in " ".join(said["notes"])
    assert "suggested max number of worker" not in done.stderr


@pytest.mark.long
def test_their_number_is_a_patch(tmp_path: Path) -> None:
    script = SLOW_SAMPLES.replace("{seconds}", "0.006")
    (tmp_path / "train.py").write_text(script)
    done, _ = tried(tmp_path, "more-workers", script, "--diff")
    assert "batch_size=8, num_workers=2)):" in done.stdout, done.stderr
    (tmp_path / "fast.patch").write_text(done.stdout)
    for command in (["git", "init", "-q"], ["git", "apply", "fast.patch"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    assert "num_workers=2)" not in (tmp_path / "train.py").read_text()


def test_workers_that_keep_up_are_left_alone(tmp_path: Path) -> None:
    script = SLOW_SAMPLES.replace("{seconds}", "0.0001")
    _, result = tried(tmp_path, "more-workers", script, "--dry-run")
    assert state_of(result, "more-workers") == "skipped"


@pytest.mark.long
def test_a_script_that_computes_with_one_thread_gets_more(tmp_path: Path) -> None:
    done, result = tried(tmp_path, "threads", ONE_THREAD.replace("{threads}", "1"))
    assert done.returncode == 0, done.stderr
    assert state_of(result, "threads") == "applied", result["fixes"]
    assert result["ratio"]["low"] > 1.1


@pytest.mark.long
def test_a_script_with_a_thread_for_each_core_is_left_alone(tmp_path: Path) -> None:
    script = ONE_THREAD.replace("{threads}", "len(__import__('os').sched_getaffinity(0))")
    _, result = tried(tmp_path, "threads", script, "--dry-run")
    assert state_of(result, "threads") == "skipped"
