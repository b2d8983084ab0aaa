"""Trials: what they are started with, and that none outlives the one who waits for it."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from slipstream.launch import Target
from slipstream.run.trial import try_out

pytestmark = pytest.mark.timeout(120)


_WAITS = """
import sys
from slipstream.launch import Target
from slipstream.run.trial import try_out
try_out(Target(sys.argv[1]), seed=1)
"""


def test_a_trial_ends_with_the_one_who_waits_for_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time; time.sleep(600)")
    waiting = subprocess.Popen([sys.executable, "-c", _WAITS, str(script)])
    try:
        trial = _trial_of(waiting)
        time.sleep(3)  # it has to have come to its first line
    finally:
        waiting.kill()
        waiting.wait()
    trial.wait(20)


def _trial_of(process: "subprocess.Popen[bytes]") -> psutil.Process:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        for child in psutil.Process(process.pid).children():
            if "slipstream.run.child" in child.cmdline():
                return child
        time.sleep(0.1)
    raise AssertionError("no trial was started")


def test_trials_have_the_same_hashes_and_say_their_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    script = tmp_path / "train.py"
    script.write_text("import os; print(hash('a')); raise ValueError(os.environ['PYTHONHASHSEED'])")
    one, other = (try_out(Target(str(script)), seed=7) for _ in range(2))
    assert not one.is_good
    assert one.last_words == "ValueError: 7"
    assert one.said == other.said
