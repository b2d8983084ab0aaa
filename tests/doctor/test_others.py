"""Cores that other programs take are told apart from those of the script and what it starts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipstream.doctor.record.others import Others

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux counts cores here")

_SPIN = "import time; end = time.time() + 2\nwhile time.time() < end: pass"
# Started by a process that is over by then, as programs of others are.
_STRANGER = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {_SPIN!r}], start_new_session=True)
print(child.pid, flush=True)
os._exit(0)
"""


def test_what_we_start_is_our_own() -> None:
    others = Others()
    subprocess.run([sys.executable, "-c", _SPIN], check=True)
    used = others.facts()
    assert used is not None
    assert used["own"] > 0.5


def test_a_strangers_program_is_not() -> None:
    alone = Others()
    time.sleep(1)
    before = alone.facts()
    others = Others()
    started = subprocess.run(
        [sys.executable, "-c", _STRANGER], check=True, capture_output=True, text=True
    )
    try:
        time.sleep(1.5)
        used = others.facts()
    finally:
        os.kill(int(started.stdout), signal.SIGKILL)
    assert used is not None and before is not None
    assert used["own"] < 0.5
    assert used["others"] > min(before["others"] + 0.4, 0.8 * used["cores"])
    assert used["cores"] == len(os.sched_getaffinity(0))


def test_ranks_of_one_job_are_no_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert others.facts() is None
