"""Scripts run with and without fixes, in the process of the test."""

import gc
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import torch

from slipstream.doctor.capture import Call, Capture
from slipstream.run.apply import fix_named
from slipstream.run.child import seed_all
from slipstream.run.fix import Situation
from slipstream.run.follow import Follower
from slipstream.run.trace import Trace

# As they are without a fix in their place.
freeze_count, threshold = gc.get_freeze_count, gc.get_threshold


def situation(*calls: str, rules: tuple[str, ...] = (), **capture: Any) -> Situation:
    """What the doctor would have said: calls of the loop and rules that found something."""
    made = [Call(number, what, f"train.py:{number}", 40) for number, what in enumerate(calls)]
    recording = Capture("train.py", {}, "", calls=made, **capture)
    findings = [{"rule": rule, "where": "train.py:1", "cost_ms": 1.0} for rule in rules]
    return Situation({"findings": findings}, recording)


def run_script(
    source: str, folder: Path, fix: str | None = None, known: Situation | None = None
) -> tuple[Trace, dict[str, Any], Situation]:
    """What was followed, the names that the script leaves, and what the fix said."""
    path = folder / "train.py"
    path.write_text(dedent(source))
    known = known or situation()
    main = ModuleType("__main__")
    main.__file__ = str(path)
    seed_all(7)
    torch.manual_seed(7)
    undo = fix_named(fix).apply(known) if fix else None
    follower = Follower()
    follower.start()
    try:
        exec(compile(path.read_text(), str(path), "exec"), main.__dict__)
    finally:
        trace = follower.stop()
        if undo is not None:
            undo()
        gc.collect()
    return trace, main.__dict__, known


def same_losses(source: str, folder: Path, fix: str) -> tuple[dict[str, Any], Situation]:
    """Both ways, with the same losses and batches; the names that the fixed one leaves."""
    before, _, _ = run_script(source, folder)
    after, names, known = run_script(source, folder, fix)
    assert before.losses and before.losses == after.losses
    assert before.batches == after.batches
    assert known.failures == {}
    return names, known
