"""`profiler-left-on`: a profiler or tracer watches every operation of the loop."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import compare, replays

NAME = "profiler-left-on"
HEALTHY = "no profiler watches the loop"
_OFTEN = 0.5  # of the steps: some are meant to be looked at


def find(case: Case) -> list[Finding]:
    """Measured with one of the same kind, and without; where it was on in most of the steps."""
    found = []
    for replay in replays(case, "profiler"):
        on, steps = replay["steps"]
        gain = compare(replay, learning_ms(case))
        if on < _OFTEN * steps or not gain.is_sure or not case.matters(gain.cost_ms):
            continue
        calls = case.calls(replay["profiler"])
        found.append(
            Finding(
                rule=NAME,
                title=(
                    f"{replay['profiler']} is on in {on} of {steps} steps and takes at least"
                    f" {gain.cost_ms:.1f} ms of a step."
                ),
                where=calls[0].where if calls else None,
                cost_ms=gain.cost_ms,
                fix="Profile a few steps, then stop it: torch.profiler.schedule, or none at all.",
                fix_class="E",
                gain=Gain(max(0.0, gain.low_ms), max(0.0, gain.high_ms), "measured"),
            )
        )
    return found
