"""Fixes without anything to do."""

from slipstream.doctor.capture import Capture
from slipstream.run.fix import Situation
from slipstream.run.idle import IDLE, idle, idle_in_trial

NAMES = ["fast-loader", "async-save", "zero-grad", "foreach-optimizer"]


def situation() -> Situation:
    return Situation({}, Capture("train.py", {}, ""))


def test_what_has_said_nothing_had_nothing_to_do() -> None:
    known = situation()
    known.note("foreach-optimizer", "of 2 optimizers")
    assert dict(idle(NAMES, known)) == {"fast-loader": IDLE, "async-save": IDLE}
    assert dict(idle_in_trial(NAMES, known)) == {"fast-loader": IDLE}, "it may save later"


def test_batches_that_are_made_elsewhere_are_no_idleness() -> None:
    known = situation()
    known.note("parallel-loading", "2 processes")
    assert "parallel-loading make the batches" in dict(idle(NAMES, known))["fast-loader"]
    assert "fast-loader" not in dict(idle_in_trial(NAMES, known))
