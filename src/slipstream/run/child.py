"""The process of a trial."""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from slipstream.launch import Target, end_as_the_script, run_target, wait_for_threads
from slipstream.orphan import end_with_parent
from slipstream.run.early import give_back, note_early

_PATIENCE_S = 300.0


def main() -> None:
    """Run what the file says, and leave what was seen beside it."""
    values = json.loads(Path(sys.argv[1]).read_text())
    end_with_parent(values["parent"])
    if values["tmpdir"] is not None:
        # The script may have its data there; tempfile's own folder is another.
        os.environ["TMPDIR"] = values["tmpdir"]
    target = Target(
        values["target"]["name"], tuple(values["target"]["args"]), values["target"]["is_module"]
    )
    place = Path(values["place"])
    seed_all(values["seed"], values["shift"])
    give_back()
    from slipstream.run.launchers import refuse_to_start_ranks
    from slipstream.run.sandbox.enter import enter
    from slipstream.run.sandbox.quiet import silence

    enter(place / "written")
    silence()
    refuse_to_start_ranks(target)
    if values["diagnose"]:
        note_early(place)
        _diagnose(target, values, place)
    else:
        _follow(target, values, place)
    if values["waits"]:
        _wait_for(place / "go")
    end_as_the_script()


def _wait_for(file: Path) -> None:
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends and not file.exists():
        time.sleep(0.05)


def seed_all(seed: int, shift: int = 0) -> None:
    """Generators that take their seed from the system get the same in every run of the script."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    # Of the processor alone: those of devices begin with a number of their own.
    torch.default_generator.manual_seed(seed)
    if shift:
        own = torch.manual_seed

        def shifted(seed: int) -> Any:
            return own(seed + shift)

        torch.manual_seed = torch.random.manual_seed = shifted


def _diagnose(target: Target, values: dict[str, Any], place: Path) -> None:
    from slipstream.doctor.capture import save_capture
    from slipstream.doctor.launch import launch
    from slipstream.run.trace import Trace, save_trace

    launched = launch(target, steps=values["steps"], seconds=values["seconds"])
    save_capture(launched.capture, place / "capture.json")
    trace = Trace(ended=launched.capture.ended, exit_code=launched.exit_code)
    save_trace(trace, place / "trace.json")


def _follow(target: Target, values: dict[str, Any], place: Path) -> None:
    from slipstream.run.apply import apply_all
    from slipstream.run.follow import Follower
    from slipstream.run.idle import idle_in_trial
    from slipstream.run.situation import load_situation
    from slipstream.run.trace import save_trace

    situation = None
    if values["fixes"]:
        situation = load_situation(Path(values["known"]))
        apply_all(values["fixes"], situation)
    follower = Follower(steps=values["steps"], seconds=values["seconds"])
    follower.start()
    ran = run_target(
        target, lambda ran: wait_for_threads(lambda: follower.signs, lambda: follower.has_ended)
    )
    trace = follower.stop()
    # A script may catch the end of its window and leave as if it were its own.
    is_cut = follower.has_ended and ran.ended == "script"
    trace.ended, trace.exit_code = "window" if is_cut else ran.ended, ran.exit_code
    if situation is not None:
        left = {
            name: "; ".join(situation.notes[name])
            for name in values["fixes"]
            if situation.did_nothing(name)
        }
        worked = [name for name in values["fixes"] if name not in situation.failures]
        left |= idle_in_trial(worked, situation)
        (place / "left.json").write_text(json.dumps(left))
    save_trace(trace, place / "trace.json")
