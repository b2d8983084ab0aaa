"""`kept-memory`: fewer page faults, the same numbers."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from slipstream.launch import Target
from slipstream.run.choose import Wish
from slipstream.run.fixes import kept_memory
from slipstream.run.launch import run as launch
from slipstream.run.memory import MARK, TRIED, VARIABLE, keeping, not_keeping
from slipstream.run.trace import Trace
from tests.run.loop_kit import situation

# What is free for a while in each step is given back; the pause stands for the rest of a step.
LOOP = """
import resource, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
weight = torch.randn(1000, requires_grad=True)
data = torch.randn(2000, 1000)
for step in range(16):
    if step == 6:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    loss = (data * weight).sigmoid().square().mean()
    loss.backward()
    weight.data -= weight.grad
    time.sleep(0.05)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, loss.item().hex())
"""


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in (VARIABLE, MARK)}


def run(environment: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", LOOP], env=environment, capture_output=True, text=True, check=True
    )
    faults, loss = done.stdout.split()
    return int(faults), loss


@pytest.mark.skipif(not kept_memory.has_own_allocator(), reason="torch without mimalloc")
def test_pages_are_used_again() -> None:
    assert not_keeping(keeping(plain_environment())) == plain_environment()
    plain, expected = run(plain_environment())
    kept, loss = run(keeping(plain_environment()))
    assert loss == expected
    assert kept < plain / 4


def test_it_applies_where_the_processor_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "has_own_allocator", lambda: True)
    monkeypatch.delenv(MARK, raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert kept_memory.applies(situation())[0]
    with pytest.raises(RuntimeError, match="not set"):
        kept_memory.apply(situation())
    for name, value in keeping({}).items():
        monkeypatch.setenv(name, value)
    assert kept_memory.applies(situation())[0]
    kept_memory.apply(situation())()
    assert not kept_memory.applies(situation(clock="device"))[0]
    most = psutil.virtual_memory().total
    assert not kept_memory.applies(situation(memory=[[0, most, 0]]))[0]
    monkeypatch.setattr(kept_memory, "has_own_allocator", lambda: False)
    assert not kept_memory.applies(situation())[0]


def test_what_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MARK, raising=False)
    monkeypatch.setenv(VARIABLE, "100")
    assert keeping({VARIABLE: "100"}) == not_keeping({VARIABLE: "100"}) == {VARIABLE: "100"}
    monkeypatch.setattr(kept_memory, "has_own_allocator", lambda: True)
    assert not kept_memory.applies(situation())[0]


def test_what_the_trials_have_chosen_stays() -> None:
    assert keeping({TRIED: "/tmp"}) == {TRIED: "/tmp"}


def test_only_where_steps_get_new_pages() -> None:
    ends = [0.1 * number for number in range(30)]
    early = [1000 * min(number, 8) for number in range(30)]
    assert not kept_memory.takes_pages(Trace(ends=ends, pages=early))
    now_and_then = [400 * (number // 5) for number in range(30)]
    assert not kept_memory.takes_pages(Trace(ends=ends, pages=now_and_then))
    always = [200 * number for number in range(30)]
    assert kept_memory.takes_pages(Trace(ends=ends, pages=always))
    assert kept_memory.takes_pages(Trace(ends=ends[:4], pages=early[:4]))  # who knows


SCRIPT = """
import sys, time, torch
torch.set_num_threads(1)
size = int(sys.argv[1])
weight = torch.randn(size, requires_grad=True)
data = torch.randn(2000, size)
optimizer = torch.optim.SGD([weight], 0.1)
for step in range(40):
    optimizer.zero_grad()
    (data * weight).sigmoid().square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
"""


@pytest.mark.skipif(not kept_memory.has_own_allocator(), reason="torch without mimalloc")
def test_a_run_of_small_steps_goes_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (MARK, VARIABLE):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    said = {}
    for size in ("4", "4000"):
        outcome = launch(Target("train.py", (size,)), Wish("exact"), dry=True)
        said[size] = next(fix for fix in outcome.fixes if fix.name == "kept-memory")
    assert said["4"].state == "skipped" and "no new pages" in said["4"].why
    assert said["4000"].why == "what a step frees is used again by the next"
