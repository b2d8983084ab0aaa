"""Trials: what they are started with, and that nothing of them outlives the one who waits."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from slipstream.errors import UsageError
from slipstream.launch import Target
from slipstream.run import trial
from slipstream.run.choose import Wish
from slipstream.run.ending import ending_in_order
from slipstream.run.launch import run
from slipstream.run.trial import START, Spec, try_out

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


def test_a_trial_that_takes_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time; print('reading files', flush=True); time.sleep(600)")
    monkeypatch.setattr(trial, "_PATIENCE_S", 30.0)
    tried = try_out(Target(str(script)), seed=1)
    assert not tried.is_good
    assert tried.said.startswith("reading files\n")
    assert tried.last_words == "nothing came to an end within 30 s"


_BY_HAND = """
import torch
model = torch.nn.Linear(64, 64)
while True:
    {step}
    for parameter, gradient in zip(model.parameters(), gradients):
        parameter.data.add_(gradient, alpha=-0.01)
"""
_BY_BACKWARD = """model.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]"""
_BY_GRAD = """loss = model(torch.randn(8, 64)).square().mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))"""


@pytest.mark.parametrize("step", [_BY_BACKWARD, _BY_GRAD])
@pytest.mark.parametrize("diagnose", [True, False])
def test_a_trial_sees_steps_by_hand(tmp_path: Path, step: str, diagnose: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(_BY_HAND.format(step=step))
    tried = try_out(Target(str(script)), seed=1, diagnose=diagnose, steps=24)
    assert tried.is_good
    assert tried.trace is not None
    assert tried.trace.ended == "window"
    assert len(tried.trace.losses) == (0 if diagnose else 25)


def _trial_of(process: "subprocess.Popen[bytes]") -> psutil.Process:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        for child in psutil.Process(process.pid).children():
            if "slipstream.run.child" in " ".join(child.cmdline()):
                return child
        time.sleep(0.1)
    raise AssertionError("no trial was started")


def test_a_trial_does_not_begin_without_the_one_who_waits_for_it(tmp_path: Path) -> None:
    script, place = tmp_path / "train.py", tmp_path / "place"
    script.write_text("print('begun')")
    place.mkdir()
    gone = subprocess.Popen(["true"])
    gone.wait()
    spec = Spec(
        target=Target(str(script)), fixes=(), known=None, seed=1, shift=0, diagnose=False, steps=1,
        seconds=None, place=str(place), waits=False, parent=gone.pid, tmpdir=None,
    )  # fmt: skip
    (place / "spec.json").write_text(json.dumps(asdict(spec)))
    for parent, said in ((gone.pid, ""), (os.getpid(), "begun\n")):
        (place / "spec.json").write_text(json.dumps({**asdict(spec), "parent": parent}))
        done = subprocess.run(
            [sys.executable, "-c", START, str(place / "spec.json")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout, done.returncode) == (said, 0 if said else 1), done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    script, place = tmp_path / "train.py", tmp_path / "tmp"
    script.write_text("import time; print('begun', flush=True); time.sleep(600)")
    place.mkdir()
    running = subprocess.Popen(
        [sys.executable, "-m", "slipstream", "run", str(script)],
        env={**os.environ, "TMPDIR": str(place)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        trial = _trial_of(running)
        while not any("begun" in file.read_text() for file in place.glob("*/output.txt")):
            assert running.poll() is None
            time.sleep(0.1)
        running.send_signal(number)
        assert running.wait(100) == 128 + number
    finally:
        running.kill()
        running.wait()
    assert not trial.is_running()
    assert [path.name for path in place.iterdir() if path.name.startswith("slipstream")] == []


def test_signals_are_as_they_were_behind_trials() -> None:
    was = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    try:
        with ending_in_order():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert callable(signal.getsignal(signal.SIGTERM))
            with ending_in_order(), pytest.raises(SystemExit) as leaving:
                signal.raise_signal(signal.SIGTERM)
            assert leaving.value.code == 143
            signal.raise_signal(signal.SIGTERM)  # what is cleaned up now comes to its end
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, was)


def test_processes_that_left_the_session_end_with_the_trial(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import subprocess\n"
        "away = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(away.pid, flush=True)\n"
        # The parent of this one ends before it.
        "subprocess.run(['sh', '-c', 'setsid sleep 600 >/dev/null 2>&1 & echo $!'])\n"
    )
    others = subprocess.Popen(["sleep", "600"])
    try:
        trial = try_out(Target(str(script)), seed=1)
        assert others.poll() is None
    finally:
        others.kill()
        others.wait()
    assert trial.is_good
    pids = [int(word) for word in trial.said.split()]
    assert len(pids) == 2
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not _is_subreaper()


def _is_subreaper() -> bool:
    value = ctypes.c_int(-1)
    assert ctypes.CDLL(None).prctl(37, ctypes.byref(value), 0, 0, 0) == 0
    return bool(value.value)


@pytest.mark.parametrize(
    "target",
    [
        *(
            Target(name, ("train.py",), is_module=True)
            for name in (
                "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
            )
        ),
        Target("/usr/bin/torchrun", ("train.py",)),
    ],
    ids=str,
)  # fmt: skip
def test_launchers_stand_before_us(target: Target) -> None:
    with pytest.raises(UsageError, match=r"torchrun … -m slipstream run train\.py"):
        run(target, Wish("exact", (), ()), dry=True)


def test_a_script_that_starts_itself_anew_fails_in_a_trial(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, sys\nos.execv(sys.executable, [sys.executable, '-c', ''])")
    trial = try_out(Target(str(script)), seed=1)
    assert not trial.is_good
    assert trial.last_words == (
        "RuntimeError: a trial cannot follow a script that starts itself anew"
    )


def test_threads_that_never_end_do_not_hold_a_trial_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.run.trial._GRACE_S", 1.0)
    script = tmp_path / "train.py"
    script.write_text(
        "import threading, queue\nthreading.Thread(target=queue.Queue().get).start()\n"
    )
    began = time.monotonic()
    trial = try_out(Target(str(script)), seed=1)
    assert trial.is_good
    assert time.monotonic() - began < 60


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


def test_what_torch_compiles_in_a_trial_is_thrown_away_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers are not in the sandbox: they would write into the user's folder."""
    users = tmp_path / "users"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(users))
    script = tmp_path / "train.py"
    script.write_text(
        "import subprocess\nfrom torch._inductor.runtime.cache_dir_utils import cache_dir\n"
        "from pathlib import Path\nPath(cache_dir(), 'a.cpp').write_text('made')\n"
        "print(subprocess.check_output(['cat', f'{cache_dir()}/a.cpp'], text=True))\n"
    )
    assert try_out(Target(str(script)), seed=1).last_words == "made"
    assert not users.exists()
