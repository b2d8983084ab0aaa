"""`slipstream run --diff` from end to end, and the proof that a patch has to pass."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slipstream.doctor.capture import Call, Capture
from slipstream.launch import Target
from slipstream.run.diff.make import Patch
from slipstream.run.diff.prove import Proof, proved_patch
from slipstream.run.fix import Situation
from slipstream.run.outcome import FixOutcome, Outcome

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

_STEP = """\
import torch


def step(model, optimizer, x):
    optimizer.zero_grad(set_to_none=False)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss
"""
_SCRIPT = """\
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset
from steps import step

torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
data = TensorDataset(torch.randn(256, 16))
open("written.txt", "a").write("once")
for epoch in range(2):
    for (x,) in DataLoader(data, 8, shuffle=True):
        loss = step(model, optimizer, x)
        print(loss.item().hex())
print("arguments", sys.argv[1:])
"""


def write(folder: Path, script: str = _SCRIPT, step: str = _STEP) -> None:
    (folder / "train.py").write_text(script)
    (folder / "steps.py").write_text(step)


def python(folder: Path, *arguments: str) -> Any:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_patch_that_is_printed_keeps_every_loss(tmp_path: Path) -> None:
    write(tmp_path)
    options = ("--diff", "--only", "zero-grad,fast-loader,kept-memory")
    done = python(tmp_path, "-m", "slipstream", "run", *options, "train.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("--- a/steps.py\n+++ b/steps.py\n")
    assert "+    optimizer.zero_grad()\n" in done.stdout
    assert '+slipstream.speed_up("fast-loader")\n' in done.stdout
    said = "the changed script: 24 batches and [0-9]+ losses are equal, bit for bit"
    assert re.search(said, " ".join(done.stderr.split()))
    assert not (tmp_path / "written.txt").exists()
    before = python(tmp_path, "train.py", "--lr", "1")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=done.stdout.encode(), check=True)
    after = python(tmp_path, "train.py", "--lr", "1")
    assert after.returncode == 0, after.stderr
    assert before.stdout == after.stdout and "arguments ['--lr', '1']" in after.stdout


def outcome_of(*names: str, **capture: Any) -> Outcome:
    fixes = [FixOutcome(name, "E", "applied", "") for name in names]
    situation = Situation({"findings": []}, Capture("train.py", {}, "", **capture))
    return Outcome("train.py", fixes, "", situation=situation)


def test_a_patch_that_changes_a_loss_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    outcome = outcome_of()
    assert outcome.situation is not None
    proof = Proof(Target("train.py"), outcome, outcome.situation)
    path = (tmp_path / "steps.py").resolve()
    worse = Patch({path: _STEP}, {path: _STEP.replace("model(x)", "model(x + 1e-6)")})
    assert "loss of backward pass" in (proof.fault(worse) or "")  # the first may round to the same
    broken = Patch({path: _STEP}, {path: _STEP.replace("return loss", "return lost")})
    assert "the script fails with it: NameError" in (proof.fault(broken) or "")
    assert path.read_text() == _STEP


def test_a_fix_whose_lines_change_a_loss_is_done_by_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last layer gets no gradient in every other step: without zeros its momentum stops. The
    recording is made to say that all have one.
    """
    step = _STEP.replace(
        "loss = model(x)", "loss = (model[0] if x.sum() > 0 else model)(x)"
    ).replace("square()", "abs()")
    write(tmp_path, step=step)
    monkeypatch.chdir(tmp_path)
    # What other programs do to steps of a third of a millisecond is not what is tested.
    monkeypatch.setattr(Proof, "_is_slower", lambda self: False)
    calls = [Call(0, "zero_grad(set_to_none=False)", "steps.py:5", 40)]
    outcome = outcome_of("zero-grad", calls=calls, optimizers=[{"without_grad": 0}])
    patch, proof = proved_patch(Target("train.py"), outcome, tmp_path, lambda line: None)
    assert patch.forms["zero-grad"].startswith("slipstream.speed_up")
    assert 'speed_up("zero-grad")' in patch.after[(tmp_path / "train.py").resolve()]
    assert "bit for bit" in proof.checked
