"""`garbage-pauses`: fewer and shorter pauses, and garbage still goes."""

import gc
from pathlib import Path
from typing import Any

import pytest

from slipstream.run.fixes import garbage
from tests.run.loop_kit import run_script, same_losses, situation

# Many objects that stay, and in each step many new ones, some of them rings.
LOOP = """
import gc, time, torch, weakref
from tests.run.loop_kit import freeze_count, threshold
class Ring:
    def __init__(self): self.me = self
table = [{"name": str(i), "tags": [i]} for i in range(60_000)]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
paused, began, alive, most, rings = [], [0.0], [], 0, []
def note(phase, info):
    if phase == "start":
        began[0] = time.perf_counter()
    else:
        paused.append((info["generation"], time.perf_counter() - began[0]))
gc.callbacks.append(note)
held = []
for step in range(60):
    rings = [ring for ring in rings if ring() is not None]
    most = max(most, len(rings))
    ring = Ring()
    rings.append(weakref.ref(ring))
    held.append([[step, i] for i in range(8000)])
    del held[:-4]
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
gc.callbacks.remove(note)
frozen, thresholds = freeze_count(), threshold()
"""


@pytest.fixture(autouse=True)
def usual_collector() -> Any:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()  # Python 3.12 starts with some
    yield
    gc.set_threshold(*before)
    gc.enable()
    assert gc.get_freeze_count() <= frozen


def test_workers_collect_as_ever(tmp_path: Path) -> None:
    """They make no steps, at which what is put off would be done."""
    script = f"""{LOOP}
import os
reading, writing = os.pipe()
child = os.fork()
if not child:
    os.write(writing, repr(gc.get_threshold()).encode())
    os._exit(0)
os.waitpid(child, 0)
in_worker = eval(os.read(reading, 100))
"""
    own = gc.get_threshold()
    names, _ = same_losses(script, tmp_path, "garbage-pauses")
    assert names["thresholds"][0] > own[0]
    assert names["in_worker"] == own


def test_pauses_are_fewer_and_garbage_goes(tmp_path: Path) -> None:
    own = gc.get_threshold()
    _, without, _ = run_script(LOOP, tmp_path)
    names, _ = same_losses(LOOP, tmp_path, "garbage-pauses")
    assert names["frozen"] > 60_000
    assert names["thresholds"][0] > own[0]
    assert names["most"] <= 2 * garbage.YOUNG
    assert len(names["paused"]) < len(without["paused"]) / 2
    assert gc.get_threshold() == own


def test_objects_without_a_step_are_still_collected(tmp_path: Path) -> None:
    source = (
        LOOP
        + """
freed = []
class Last(Ring):
    def __del__(self): freed.append(1)
Last()
more = [[i] for i in range(300_000)]
"""
    )
    _, names, _ = run_script(source, tmp_path, "garbage-pauses")
    assert names["freed"]


def test_a_script_with_its_own_way_is_left_alone(tmp_path: Path) -> None:
    source = LOOP.replace("held = []", "held = []; gc.disable()")
    frozen = gc.get_freeze_count()
    names, _ = same_losses(source, tmp_path, "garbage-pauses")
    assert names["frozen"] == frozen
    assert names["paused"] == []


def test_thresholds_that_the_script_sets_later_stay(tmp_path: Path) -> None:
    source = LOOP.replace("    ring = Ring()", "    ring = Ring(); gc.set_threshold(900, 5, 5)")
    _, names, _ = run_script(source, tmp_path, "garbage-pauses")
    assert names["thresholds"] == (900, 5, 5)
    assert gc.get_threshold() == (900, 5, 5)


def test_another_optimizer_lets_go_of_what_was_frozen(tmp_path: Path) -> None:
    source = (
        LOOP.replace("table = [", "first = Ring(); gone = weakref.ref(first)\ntable = [")
        + """
del first
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
gc.collect()
is_gone = gone() is None
"""
    )
    _, names, _ = run_script(source, tmp_path, "garbage-pauses")
    assert names["is_gone"]


def test_a_collection_that_the_script_asks_for_is_of_all(tmp_path: Path) -> None:
    source = LOOP.replace("held = []", "old = Ring()\nseen = weakref.ref(old)\nheld = []") + (
        "\ndel old\nstayed = seen() is not None\ngc.collect()\nis_gone = seen() is None\n"
        "frozen = freeze_count()\n"
    )
    names, _ = same_losses(source, tmp_path, "garbage-pauses")
    assert names["stayed"] and names["is_gone"]
    assert names["frozen"] > 60_000


def test_young_objects_that_the_script_collects_are_not_frozen(tmp_path: Path) -> None:
    source = """
    import gc, torch, weakref
    class Ring:
        def __init__(self):
            self.own = self
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    alive, seen = [], []
    for step in range(120):
        ring = Ring()
        seen.append(weakref.ref(ring))
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        gc.collect(0)
        alive.append(sum(each() is not None for each in seen))
    """
    names, _ = same_losses(source, tmp_path, "garbage-pauses")
    assert max(names["alive"]) < 40


def test_a_collection_is_of_all_beside_another_fix_for_it(tmp_path: Path) -> None:
    source = LOOP.replace("held = []", "old = Ring()\nseen = weakref.ref(old)\nheld = []") + (
        "\ndel old\nfound = gc.collect()\nis_gone = seen() is None\n"
    )
    known = situation()
    undo = garbage.apply(known)
    try:
        _, names, _ = run_script(source, tmp_path, "empty-cache", known)
    finally:
        undo()
    assert names["is_gone"]


def test_a_script_finds_its_objects_and_its_own_settings(tmp_path: Path) -> None:
    source = LOOP + (
        "\nfound = sum(type(one) is Ring for one in gc.get_objects())\n"
        "knows_table = any(one is table for one in gc.get_referrers(table[0]))\n"
        "seen = gc.get_freeze_count(), gc.get_threshold()\nfrozen = freeze_count()\n"
    )
    _, without, _ = run_script(source, tmp_path)
    names, _ = same_losses(source, tmp_path, "garbage-pauses")
    assert names["frozen"] > 60_000
    assert names["found"] and names["knows_table"] and without["knows_table"]
    assert names["seen"] == without["seen"]


def test_it_applies_where_pauses_count() -> None:
    assert garbage.applies(situation(rules=("garbage-collection",)))[0]
    assert not garbage.applies(situation())[0]
