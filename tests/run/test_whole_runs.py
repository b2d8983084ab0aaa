"""`slipstream run` from end to end: what is applied, what is undone, and what the script sees."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)

_SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
order = [int(name) for name in {str(number) for number in range(512)}]  # by hashes of strings
data = TensorDataset(torch.randn(512, 16)[order])
open("written.txt", "a").write("once")
for epoch in range(3):
    for (x,) in DataLoader(data, 8, shuffle=True):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
print("arguments", sys.argv[1:], "loss", loss.item())
sys.exit(3)
"""


def run(folder: Path, *options: str, script: str = _SCRIPT) -> tuple[Any, dict[str, Any]]:
    (folder / "train.py").write_text(dedent(script))
    done = subprocess.run(
        [
            sys.executable, "-m", "slipstream", "run", "--report", "result.json", *options,
            "train.py", "--lr", "1",
        ],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = folder / "result.json"
    return done, json.loads(report.read_text()) if report.exists() else {}


def state_of(result: dict[str, Any], fix: str) -> str:
    return next(entry["state"] for entry in result["fixes"] if entry["fix"] == fix)


def test_a_script_runs_once_with_its_fixes_and_its_own_exit_code(tmp_path: Path) -> None:
    script = _SCRIPT.replace("sys.exit", "import os; print(os.environ.keys()); sys.exit")
    done, result = run(tmp_path, script=script)
    assert done.returncode == 3, done.stderr
    assert "arguments ['--lr', '1']" in done.stdout
    kept = state_of(result, "kept-memory") == "applied"
    assert ("MIMALLOC_PURGE_DELAY" in done.stdout) is kept
    assert "SLIPSTREAM_TRIED" not in done.stdout
    assert not [line for line in result["warnings"] if "cores meanwhile" not in line]
    assert (tmp_path / "written.txt").read_text() == "once"
    assert state_of(result, "zero-grad") == "applied", result["fixes"]
    assert "are equal, bit for bit" in result["checked"]
    assert result["ratio"]["low"] <= result["ratio"]["value"] <= result["ratio"]["high"]
    assert result["next"] == "slipstream run --allow numeric train.py --lr 1"
    assert result["next"] in done.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    done, result = run(tmp_path, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "written.txt").exists()
    assert state_of(result, "zero-grad") == "applied"


def test_a_dry_run_does_not_call_applied_what_left_all_alone(tmp_path: Path) -> None:
    saves = _SCRIPT.replace("        optimizer.step()", """        optimizer.step()
        torch.save(model.state_dict(), "model.pt")""")  # fmt: skip
    _, result = run(tmp_path, "--dry-run", "--only", "async-save", script=saves)
    why = next(entry["why"] for entry in result["fixes"] if entry["fix"] == "async-save")
    if not why.startswith("slower"):  # by chance
        assert state_of(result, "async-save") == "skipped"
        assert why.startswith("files that are written in a moment")
    assert state_of(result, "async-save") != "applied"


def test_fixes_can_be_chosen(tmp_path: Path) -> None:
    done, result = run(tmp_path, "--dry-run", "--skip", "zero-grad")
    assert state_of(result, "zero-grad") == "skipped"
    done, _ = run(tmp_path, "--only", "faster-please")
    assert done.returncode == 2
    assert "There is no fix 'faster-please'. There are: " in done.stderr


def test_a_fix_that_changes_a_loss_is_undone(tmp_path: Path) -> None:
    """Stands for a fix with a fault: a script that computes something else where it is applied."""
    sick = _SCRIPT.replace(
        "loss = model(x)", 'loss = model(x + hasattr(torch.nn.Module.zero_grad, "__wrapped__"))'
    )
    done, result = run(tmp_path, "--only", "zero-grad", script=sick)
    assert done.returncode == 3, done.stderr
    assert state_of(result, "zero-grad") == "undone"
    why = next(entry["why"] for entry in result["fixes"] if entry["fix"] == "zero-grad")
    assert why.startswith("loss of backward pass 1: ")


_OWN_NOISE = _SCRIPT.replace(
    "    loss.backward()",
    "    (loss + 1e-6 * int.from_bytes(os.urandom(1))).backward()",
).replace("import sys", "import os, sys")


def test_a_script_whose_own_runs_differ_is_compared_where_they_do_not(tmp_path: Path) -> None:
    done, result = run(tmp_path, "--only", "zero-grad", "--dry-run", script=_OWN_NOISE)
    assert done.returncode == 0, done.stderr
    assert state_of(result, "zero-grad") in ("applied", "undone")  # slower by chance
    if state_of(result, "zero-grad") == "applied":
        assert "24 batches are equal, bit for bit" in result["checked"]
        assert "no further from those of the script than 8 times" in result["checked"]
    else:
        why = next(entry["why"] for entry in result["fixes"] if entry["fix"] == "zero-grad")
        assert why.startswith("slower")


def test_a_run_that_is_not_as_its_trials_goes_on_as_written(tmp_path: Path) -> None:
    """Stands for a fix that fails later: what is computed depends on being a trial."""
    sick = _SCRIPT.replace(
        "loss = model(x)", 'loss = model(x + (os.environ.get("WANDB_MODE") != "disabled"))'
    ).replace("import sys", "import os, sys")
    sick = sick.replace(
        "sys.exit(3)",
        """
print("wrapped", hasattr(torch.nn.Module.zero_grad, "__wrapped__"))
print("keeps", os.environ.get("MIMALLOC_PURGE_DELAY"), "hash", hash("a"), "pid", os.getpid())
""",
    )
    for _ in range(3):  # in a trial the fix may be slower by chance
        done, result = run(tmp_path, "--only", "zero-grad", script=sick)
        if "'why': 'slower" not in str(result["fixes"]):
            break
    assert done.returncode == 0, done.stderr
    assert state_of(result, "zero-grad") == "undone"
    assert "the run itself was not as its trials: loss of backward pass 1" in str(result["fixes"])
    assert "All fixes were undone there" in "".join(result["warnings"])
    assert "went on as written" in done.stderr
    assert "wrapped False" in done.stdout
    # Nothing of a fix that was not chosen is left in the process.
    assert "keeps None" in done.stdout


def test_a_script_that_fails_says_so(tmp_path: Path) -> None:
    done, result = run(tmp_path, script="print('as written'); raise ValueError('no data here')")
    assert done.returncode == 1
    assert "did not get through a trial" in done.stderr
    assert done.stderr.count("Traceback") == 1
    assert "ValueError: no data here" in done.stderr
    assert done.stdout == "as written\n"
    assert not any(fix["state"] == "applied" for fix in result["fixes"])


_SPAWNS = """
import sys
import torch.multiprocessing as mp

def main(rank, path):
    open(path, "a").write(f"rank {rank}")

if __name__ == "__main__":
    mp.spawn(main, args=(sys.argv[1],), nprocs=1)
    print("all ranks are done")
"""


def test_a_script_that_starts_its_ranks_runs_as_written(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SPAWNS)
    command = [sys.executable, "-m", "slipstream", "run", "train.py", "seen.txt"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 100  # it was not waited for
    assert "train.py starts processes that train" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == "all ranks are done\n"
    assert (tmp_path / "seen.txt").read_text() == "rank 0"


def test_what_was_asked_of_trials_alone_is_refused_without_them(tmp_path: Path) -> None:
    done, _ = run(tmp_path, "--dry-run", script="raise ValueError('no data here')")
    assert done.returncode == 2
    assert "did not get through its first steps" in done.stderr
    assert "no data here" in done.stderr


_ASKS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.parse_args()
"""
_EARLY = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
is_fixed = hasattr(torch.nn.Module.zero_grad, "__wrapped__")
for step, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(512, 16)), 16)):
    if step == 30 and is_fixed:
        END
    optimizer.zero_grad(set_to_none=False)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
sys.exit(5 if is_fixed and CODE else 0)
"""


@pytest.mark.parametrize(
    ("end", "code", "why"),
    [("break", "False", "end: the script was over after 32 "), ("pass", "True", "exit code: 0 ")],
)
def test_a_fix_that_makes_the_script_end_otherwise_is_undone(
    tmp_path: Path, end: str, code: str, why: str
) -> None:
    script = _EARLY.replace("END", end).replace("CODE", code)
    done, result = run(tmp_path, "--only", "zero-grad", script=script)
    assert done.returncode == 0, done.stderr
    (entry,) = [entry for entry in result["fixes"] if entry["fix"] == "zero-grad"]
    assert (entry["state"], entry["why"].startswith(why)) == ("undone", True), entry


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (_ASKS, 2, "the following arguments are required: --data"),
        ("raise SystemExit('no data here')", 1, "no data here"),
        ("import torch; torch.nn.Linear(2, 2)(torch.ones(2))", 0, ""),
    ],
)
def test_a_script_without_a_step_runs_as_written(
    tmp_path: Path, script: str, code: int, said: str
) -> None:
    done, result = run(tmp_path, script=script)
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert lines[:2] == [
        "slipstream: looking at the script …",
        "slipstream: no training step was seen, so nothing is applied",
    ]
    assert said in done.stderr and not any("slipstream:" in line for line in lines[2:])
    assert "skipped" not in done.stderr and "kept-memory" not in done.stderr
    assert result["fixes"] == [] and "no training step" in result["checked"]


def test_a_report_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('ran.txt', 'w'); print('ran')")
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", "run", "--report", "no/such.json", "train.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == f"slipstream run: --report: there is no folder {tmp_path / 'no'}.\n"
    assert done.stdout == ""


def test_a_script_that_spoils_its_streams_keeps_its_exit_code(tmp_path: Path) -> None:
    script = _EARLY.replace("END", "pass").replace("CODE", "False")
    script = script.replace(
        "sys.exit(5 if is_fixed and False else 0)",
        """
class Quiet:
    closed = True  # Python asks before it flushes at its end
    def write(self, text): pass
sys.stdout = Quiet()
sys.exit(7)
""",
    )
    done, result = run(tmp_path, "--only", "zero-grad", script=script)
    assert done.returncode == 7, done.stderr
    assert "AttributeError: 'Quiet' object has no attribute 'flush'" in done.stderr
    assert "zero-grad" in done.stderr  # the table came all the same
    assert result["fixes"]


def test_an_interrupt_has_its_traceback(tmp_path: Path) -> None:
    done, _ = run(tmp_path, script=_SCRIPT.replace("sys.exit(3)", "raise KeyboardInterrupt"))
    assert done.returncode == -signal.SIGINT
    assert f'File "{tmp_path}/train.py", line 19, in <module>\n    raise Keyb' in done.stderr
    assert "\nKeyboardInterrupt" in done.stderr
