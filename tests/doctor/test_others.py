"""Cores that other programs take are told apart from those of the script and what it starts."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipstream.doctor.record.others import Others

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux counts cores here")

_SPIN = "import time; end = time.time() + {}\nwhile time.time() < end: pass"
# Started by a process that is over by then, as programs of others are.
_STRANGER = f"""
import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", {_SPIN.format(20)!r}], start_new_session=True,
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)
print(child.pid, flush=True)
os._exit(0)
"""


def _childrens_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_what_we_start_is_our_own() -> None:
    before, began = _childrens_seconds(), time.monotonic()
    others = Others()
    subprocess.run([sys.executable, "-c", _SPIN.format(1)], check=True)
    used = others.facts()
    theirs = (_childrens_seconds() - before) / (time.monotonic() - began)
    assert used is not None
    assert used["own"] > 0.9 * theirs


def test_a_strangers_program_is_not() -> None:
    started = subprocess.run(
        [sys.executable, "-c", _STRANGER], check=True, capture_output=True, text=True
    )
    pid = int(started.stdout)
    try:
        time.sleep(0.5)
        others, began, before = Others(), time.monotonic(), _seconds_of(pid)
        time.sleep(1.5)
        used = others.facts()
        theirs = (_seconds_of(pid) - before) / (time.monotonic() - began)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert used is not None
    assert used["own"] < 0.3
    assert used["others"] > 0.8 * theirs > 0.1
    assert used["cores"] == len(os.sched_getaffinity(0))


def _seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "SLURM_NTASKS", "WORLD_SIZE"])
def test_ranks_of_one_job_are_no_strangers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others()
    assert others.facts() is not None
    monkeypatch.setenv(name, "")
    assert others.facts() is not None
    monkeypatch.setenv(name, "2")
    assert others.facts() is None


def test_cores_that_are_others_by_now_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4})
    assert others.facts() is None
