"""Ctrl-C and the interpreter's exit: prompt, quiet, nothing left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.faults.datasets import is_gone, wait_for, wait_for_text

pytestmark = pytest.mark.timeout(150)
ROOT = Path(__file__).parents[2]

LOOP = """
import sys, time
from pathlib import Path
from slipstream import Loader
from tests.faults.conftest import engine_loader
from tests.faults.datasets import Numbers, Sleeps

def main(way, told, packed):
    loader = {{
        "workers": lambda: Loader(Numbers(100_000), 8, num_workers=2),
        "kept workers": lambda: Loader(Numbers(100_000), 8, num_workers=2, persistent_workers=True),
        "slow sample": lambda: Loader(Sleeps(100_000, at=9, seconds=60), 8, num_workers=2),
        "engine": lambda: engine_loader(packed, sampler=[k % 24 for k in range(100_000)]),
    }}[way]()
    global kept, iterator
    kept, iterator = [], iter(loader)
    kept.append(next(iterator))
    Path(told).write_text(" ".join(str(p.pid) for p in iterator._workers) + " .")
    {then}

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def start(way: str, then: str, told: Path, packed: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", LOOP.format(then=then), way, str(told), str(packed)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def session_of(leader: int) -> list[int]:
    """Processes of a session that are alive."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and not is_gone(process.pid):
                found.append(process.pid)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", ["workers", "slow sample", "engine"])
def test_ctrl_c_ends_the_loop(way: str, packed: Path, tmp_path: Path) -> None:
    told = tmp_path / "pids"
    then = "for batch in iterator: time.sleep(0.001)"
    with start(way, then, told, packed) as process:
        wait_for_text(told)
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        _, errors = process.communicate(timeout=60)
        assert time.monotonic() - began < 15
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1, errors
    wait_for(lambda: not session_of(process.pid), "end of all processes")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["workers", "kept workers", "engine"])
def test_the_interpreter_exits_in_the_middle_of_an_epoch(
    way: str, packed: Path, tmp_path: Path
) -> None:
    then = "global ended; import atexit; ended = time.monotonic(); kept.append(next(iterator))"
    with start(way, then, tmp_path / "pids", packed) as process:
        out, errors = process.communicate(timeout=100)
    assert (process.returncode, out, errors) == (0, "", "")
    wait_for(lambda: not session_of(process.pid), "end of all processes")
