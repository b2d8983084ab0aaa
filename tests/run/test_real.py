"""The run itself: fixes that are undone in the middle of it leave the script as it was written."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from slipstream.doctor.capture import Capture
from slipstream.launch import Target
from slipstream.run.apply import FIXES
from slipstream.run.fix import Situation
from slipstream.run.outcome import FixOutcome, Outcome
from slipstream.run.real import PLACE, run_for_real
from slipstream.run.situation import diagnosed
from slipstream.run.trace import Trace
from slipstream.run.tried import Tried, load_tried, save_tried

EXACT = [fix.name for fix in FIXES if fix.kind == "E" and fix.name != "kept-memory"]
SCRIPT = """
import json, sys, torch
from pathlib import Path
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    x = torch.randn(96, 8)
    def __len__(self): return 96
    def __getitem__(self, i): return self.x[i] + torch.rand(8), i

torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.2))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
losses = []
for epoch in range(3):
    for x, _ in DataLoader(Rows(), 8, shuffle=True, num_workers=WORKERS):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
torch.save(model.state_dict(), sys.argv[1] + ".pt")
Path(sys.argv[1]).write_text(json.dumps(losses))
"""


def run(folder: Path, workers: int, names: list[str], expected: list[Trace]) -> Outcome:
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("WORKERS", str(workers)))
    place = folder / f"{PLACE}x"
    place.mkdir()
    diagnosed(Capture("train.py", {}, ""), place)
    fixes = [FixOutcome(name, "E", "applied", "why") for name in names]
    save_tried(Tried(5, fixes=fixes, names=names, expected=expected), place)
    outcome = run_for_real(Target(str(script), (str(folder / "losses.json"),)), place)
    assert not place.exists()
    return outcome


def left_by(folder: Path) -> tuple[Any, Any]:
    losses = json.loads((folder / "losses.json").read_text())
    return losses, torch.load(folder / "losses.json.pt")


@pytest.mark.parametrize("workers", [0, 2])
def test_fixes_are_undone_in_the_middle(tmp_path: Path, workers: int) -> None:
    places = [torch.nn.Module.zero_grad, torch.save, torch.autograd.backward, DataLoader.__iter__]
    run(tmp_path, workers, [], [])
    losses, model = left_by(tmp_path)
    wrong = list(losses)
    wrong[4] = (7.0).hex()
    with pytest.warns(UserWarning, match="not as its trials: loss of backward pass 5"):
        outcome = run(tmp_path, workers, EXACT, [Trace(losses=wrong)])
    assert left_by(tmp_path)[0] == losses
    assert all(torch.equal(left_by(tmp_path)[1][name], model[name]) for name in model)
    assert {fix.state for fix in outcome.fixes} == {"undone"}
    assert outcome.exit_code == 0
    assert places == [
        torch.nn.Module.zero_grad, torch.save, torch.autograd.backward, DataLoader.__iter__,
    ]  # fmt: skip


def test_a_run_as_its_trials_keeps_its_fixes(tmp_path: Path) -> None:
    run(tmp_path, 0, [], [])
    losses, _ = left_by(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = run(tmp_path, 0, EXACT, [Trace(losses=losses)])
    assert left_by(tmp_path)[0] == losses
    assert {fix.why for fix in outcome.fixes if fix.state == "applied"} == {"why"}
    why = {fix.name: fix.why for fix in outcome.fixes if fix.state == "skipped"}
    assert "zero-grad" not in why
    assert why.pop("async-save").startswith("files that are written in a moment")
    assert why.pop("parallel-loading").count("DataLoader at ") == 1  # though there are three
    assert set(why.values()) == {"there was nothing to do for it"}


def test_where_warnings_are_errors_fixes_are_undone_and_the_script_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, 0, [], [])
    losses, _ = left_by(tmp_path)
    zero_grad = torch.nn.Module.zero_grad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = run(tmp_path, 0, EXACT, [Trace(losses=[(7.0).hex()])])
    assert outcome.exit_code == 0
    assert left_by(tmp_path)[0] == losses
    assert {fix.state for fix in outcome.fixes} == {"undone"}
    assert torch.nn.Module.zero_grad is zero_grad
    assert "not as its trials: loss of backward pass 1" in capsys.readouterr().err


def test_a_fix_that_had_nothing_to_do_says_so(tmp_path: Path) -> None:
    """Samples are no rows, and there are no workers."""
    (idle,) = run(tmp_path, 0, ["fast-loader"], []).fixes
    assert (idle.state, idle.why) == ("skipped", "there was nothing to do for it")
    (busy,) = run(tmp_path, 2, ["fast-loader"], []).fixes
    assert "shared memory" in busy.notes[0] and busy.state == "applied"


def test_what_was_tried_comes_back(tmp_path: Path) -> None:
    diagnosed(Capture("train.py", {}, ""), tmp_path)
    tried = Tried(5, names=["zero-grad"], expected=[Trace(batches=[(0, "a")], losses=["0x1p+0"])])
    save_tried(tried, tmp_path)
    again, situation = load_tried(tmp_path)
    assert again == tried
    assert isinstance(situation, Situation)


def test_a_fix_that_left_all_alone_is_not_called_applied() -> None:
    known = Situation({}, Capture("train.py", {}, ""))
    known.note("parallel-loading", "the first loader: left alone", left=True)
    outcome = FixOutcome("parallel-loading", "E", "applied", "why")
    outcome.hear(known)
    assert (outcome.state, outcome.why, outcome.notes) == (
        "skipped", "the first loader: left alone", [],
    )  # fmt: skip
    known.note("parallel-loading", "the second one: made ahead")
    other = FixOutcome("parallel-loading", "E", "applied", "why")
    other.hear(known)
    assert other.state == "applied" and len(other.notes) == 2
