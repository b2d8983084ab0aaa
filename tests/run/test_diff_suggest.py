"""What is only ever suggested: with a patch where one line can be changed, else in words."""

import io
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slipstream.doctor.capture import Capture
from slipstream.launch import Target
from slipstream.run.diff.prove import Proof
from slipstream.run.diff.show import _speed
from slipstream.run.diff.suggest import Suggestion, print_suggestions, suggestions
from slipstream.run.fix import Situation
from slipstream.run.outcome import FixOutcome, Outcome
from slipstream.run.speed import Speed

_SCRIPT = """\
import time
import torch
loader = torch.utils.data.DataLoader(data, batch_size=1)
conv = torch.nn.Conv2d(3, 8, 3)
for epoch in range(2):
    for step, x in enumerate(loader):
        began = time.perf_counter()
        loss = model(x)
        print("loss",
              loss)
        if step % 100 == 0:
            torch.save(model, "model.pt")
        total += loss.item()
while True:
    torch.save(model, "model.pt")
"""


def finding(rule: str, line: int, *places: int, kind: str = "S") -> dict[str, Any]:
    return {
        "rule": rule, "title": f"{rule} is slow.", "where": f"train.py:{line}",
        "places": [f"train.py:{place}" for place in places], "class": kind, "fix": "Do less.",
        "gain": {"low_ms": 0.0, "high_ms": 2.0, "how": "measured"},
    }  # fmt: skip


def report(*findings: dict[str, Any]) -> dict[str, Any]:
    return {"findings": list(findings), "step_ms": 8.0}


def suggested(folder: Path, *findings: dict[str, Any]) -> list[Suggestion]:
    (folder / "train.py").write_text(_SCRIPT)
    return suggestions(report(*findings), Target("train.py"), folder)


@pytest.mark.parametrize(
    ("rule", "line", "changed"),
    [
        ("small-batch", 3,
         "+loader = torch.utils.data.DataLoader(data, batch_size=2)"),
        ("slow-worker-start", 3,
         "+loader = torch.utils.data.DataLoader(data, batch_size=1, persistent_workers=True)"),
        ("conv-bias-before-norm", 4, "+conv = torch.nn.Conv2d(3, 8, 3, bias=False)"),
        ("timer-without-sync", 7, "+        torch.cuda.synchronize()"),
        ("logging-in-loop", 9,
         '+        if step % 50 == 0:\n+            print("loss",\n+                  loss)'),
    ],
)  # fmt: skip
def test_a_line_that_can_be_changed_is_shown_as_a_patch(
    tmp_path: Path, rule: str, line: int, changed: str
) -> None:
    (found,) = suggested(tmp_path, finding(rule, line))
    assert f"\n{changed}\n" in found.patch
    assert found.gain == "Gain, measured: at most 2.0 ms of a step (25%)."
    subprocess.run(
        ["git", "apply", "--check"], cwd=tmp_path, input=found.patch.encode(), check=True
    )


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("frequent-checkpoint", 12),  # at some steps already
        ("frequent-checkpoint", 15),  # no loop that counts
        ("sync-each-step", 13),  # a value that is used
        ("python-in-loop", 8),
        ("small-batch", 4),
    ],
)
def test_what_needs_thought_stays_advice(tmp_path: Path, rule: str, line: int) -> None:
    (found,) = suggested(tmp_path, finding(rule, line))
    assert found.patch == ""
    assert found.where == f"train.py:{line}" and found.advice == "Do less."


def test_only_what_changes_results_and_is_not_cured_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    outcome = Outcome(
        "train.py", [FixOutcome("async-save", "E", "applied", "")], "",
        situation=Situation(
            report(
                finding("frequent-checkpoint", 12),
                finding("zero-grad-memset", 8, kind="E"),
                finding("logging-in-loop", 9),
            ),
            Capture("train.py", {}, ""),
        ),
    )  # fmt: skip
    said = io.StringIO()
    print_suggestions(outcome, Target("train.py"), tmp_path, Console(file=said, width=90))
    text = said.getvalue()
    assert text.count("yours to decide") == 1
    assert "yours to decide: logging-in-loop train.py:9" in text
    assert "+        if step % 50 == 0:" in text
    assert (tmp_path / "train.py").read_text() == _SCRIPT


def test_a_speed_that_says_nothing_is_called_so() -> None:
    proof = Proof(Target("train.py"), Outcome("train.py", [], ""), Situation({}, None))
    proof.speed = Speed(10.0, 8.0, 0.47, 1.48)
    assert _speed(proof) == "0.47 to 1.48 x as fast beside the script: could not be told from noise"
    proof.speed = Speed(10.0, 20.0, 1.8, 2.2)
    assert _speed(proof) == "2.00 x as fast (1.80 to 2.20) beside the script"
