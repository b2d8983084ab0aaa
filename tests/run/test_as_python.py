"""A script sees under `slipstream run` what it sees under `python`: its modules, its path, its
variables, its threads, its end.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)

_SCRIPT = """
import os
del os.environ["OMP_DYNAMIC"]  # the user's; a second time it would fail
os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "") + "1"
import atexit, importlib.util, json, pickle, sys, threading, torch

class Kept:
    pass

def at_end():
    import late
    pickle.dump(Kept(), open("kept.pickle", "wb"))
    seen["late"] = [late.WHERE, sys.argv, sys.path[0]]
    json.dump(seen, open("seen.json", "w"))

atexit.register(at_end)
decoy = importlib.util.find_spec("decoy") is not None
seen = {"path": sys.path, "argv": sys.argv, "threads": torch.get_num_threads(), "decoy": decoy}
seen["variables"] = {name: os.environ.get(name) for name in ("OMP_DYNAMIC", "OMP_NUM_THREADS")}
seen["ours"] = [name for name in os.environ if name.startswith("SLIPSTREAM")]
seen["data"] = open(os.environ["TMPDIR"] + "/data.txt").read()

def train():
    seen["builtins"] = __builtins__.__name__
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(60)])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    torch.manual_seed(seed=1)
    for step in range(200):
        optimizer.zero_grad(set_to_none=False)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    seen["steps"] = step + 1

threading.Thread(target=train).start()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "late.py").write_text("WHERE = __file__\n")
    (tmp_path / "code" / "train.py").write_text(_SCRIPT)
    (tmp_path / "code" / "__init__.py").touch()
    (tmp_path / "decoy.py").write_text("")
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "data.txt").write_text("staged")
    return tmp_path


def seen(place: Path, *command: str) -> dict[str, Any]:
    environment = {**os.environ, "TMPDIR": str(place / "staged"), "OMP_DYNAMIC": "0"}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, *command], cwd=place, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    found: dict[str, Any] = json.loads((place / "seen.json").read_text())
    for name in ("seen.json", "kept.pickle"):
        (place / name).unlink()
    return found


def test_a_script_and_its_threads_and_its_end(place: Path) -> None:
    expected = seen(place, "code/train.py", "7")
    run = ("-m", "slipstream", "run", "--only", "zero-grad", "--report", "result.json")
    assert seen(place, *run, "code/train.py", "7") == expected
    result = json.loads((place / "result.json").read_text())
    assert result["run_per_s"] is not None  # of the thread
    [fix] = [fix for fix in result["fixes"] if fix["fix"] == "zero-grad"]
    if fix["state"] == "applied":  # a busy machine may find it slower
        assert "losses are equal, bit for bit" in result["checked"]


def test_a_module(place: Path) -> None:
    (place / "late.py").write_text("WHERE = __file__\n")
    expected = seen(place, "-m", "code.train", "7")
    run = ("-m", "slipstream", "run", "--only", "zero-grad")
    assert seen(place, *run, "-m", "code.train", "7") == expected


def test_an_interrupt_ends_the_process_by_its_signal(tmp_path: Path) -> None:
    """So that the loop of a shell around it ends, too."""
    (tmp_path / "train.py").write_text(
        dedent("""
            import atexit, os, signal
            atexit.register(lambda: print("its end"))
            log = open("log.txt", "w")
            log.write("not flushed")
            os.kill(os.getpid(), signal.SIGINT)
        """)
    )
    for command in (["train.py"], ["-m", "slipstream", "run", "train.py"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == -signal.SIGINT, done.stderr
        assert done.stdout == "its end\n"
        assert (tmp_path / "log.txt").read_text() == "not flushed"


def test_an_exit_code_below_zero_is_no_interrupt(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; sys.exit(-2)")
    for command in (["train.py"], ["-m", "slipstream", "run", "train.py"]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, check=False)
        assert done.returncode == 254
