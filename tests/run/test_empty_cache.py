"""`empty-cache`: calls that free nothing are left out, those that matter are not."""

from pathlib import Path

import psutil
import pytest
import torch

from slipstream.run.fixes import empty_cache
from tests.run.loop_kit import run_script, same_losses, situation

LOOP = """
import gc, torch
class Ring:
    def __init__(self, size): self.me, self.data = self, bytearray(size)
table = [{"name": str(i), "tags": [i]} for i in range(2_000)]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
runs = []
def note(phase, info):
    if phase == "start" and info["generation"] == 2:
        runs.append(step)
gc.callbacks.append(note)
found = []
for step in range(12):
    {garbage}
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    {call}
gc.callbacks.remove(note)
"""


def loop(call: str, garbage: str = "pass") -> str:
    return LOOP.replace("{call}", call).replace("{garbage}", garbage)


def test_collections_are_left_out(tmp_path: Path) -> None:
    names, _ = same_losses(loop("gc.collect()"), tmp_path, "empty-cache")
    assert names["runs"][0] == 0
    assert len(names["runs"]) <= 3


def test_rings_of_a_step_go_with_it(tmp_path: Path) -> None:
    garbage = "ring = Ring(9); import weakref; kept.append(weakref.ref(ring)); del ring"
    script = loop("gc.collect(); alive.append(sum(ring() is not None for ring in kept))", garbage)
    names, _ = same_losses("kept, alive = [], []\n" + script, tmp_path, "empty-cache")
    assert names["alive"] == [0] * 12


def test_a_result_that_is_used_is_a_result(tmp_path: Path) -> None:
    call = "found.append(gc.collect())"
    names, _ = same_losses(loop(call, "Ring(9)"), tmp_path, "empty-cache")
    assert len(names["runs"]) == 12
    assert min(names["found"]) > 0


def test_memory_that_grows_is_collected(tmp_path: Path) -> None:
    size = psutil.Process().memory_info().rss // 8
    garbage = f"Ring({size})"
    names, _ = same_losses(loop("gc.collect()", garbage), tmp_path, "empty-cache")
    assert len(names["runs"]) > 5


def test_the_device_is_emptied_when_it_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without one, by what the device says of itself."""
    calls: list[int] = []
    left = [0.9]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(1))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (left[0], 1.0))
    monkeypatch.setattr(empty_cache, "SHARE", 0.0)  # never seldom enough
    source = loop("torch.cuda.empty_cache()")
    run_script(source, tmp_path, "empty-cache")
    assert len(calls) == 1
    left[0] = 0.05
    run_script(source, tmp_path, "empty-cache")
    assert len(calls) == 13


def test_it_applies_where_the_calls_cost() -> None:
    assert empty_cache.applies(situation(rules=("forced-garbage-collection",)))[0]
    assert empty_cache.applies(situation(rules=("empty-cache-in-loop",)))[0]
    assert not empty_cache.applies(situation("gc.collect"))[0]
