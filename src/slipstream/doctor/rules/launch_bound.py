"""`launch-bound`: a step is a long list of small operations, and starting them takes the time."""

import statistics

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.debugging import is_debugged
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import replays

NAME = "launch-bound"
HEALTHY = "the device has enough to do in every operation"
_GROWS = 1.3  # with twice the batch, where the work itself takes the time, it doubles
_LIKE_THE_LOOP = 0.3  # of a step's passes: a replay that is shorter had a smaller batch


def find(case: Case) -> list[Finding]:
    """Twice the batch takes hardly longer: what it takes more is the work of one."""
    # A debugging aid makes launches slow by itself, and has a rule.
    if not case.on_device or is_debugged(case):
        return []
    for replay in replays(case, "double-batch"):
        once, twice = statistics.median(replay["now_ms"]), statistics.median(replay["then_ms"])
        learning = learning_ms(case)
        cost = learning * (1 - max(0.0, twice - once) / once)
        is_alike = once > _LIKE_THE_LOOP * learning
        if twice > _GROWS * once or not is_alike or not case.matters(cost):
            continue
        facts = facts_of(case, replay["model"])
        return [
            Finding(
                rule=NAME,
                title=(
                    f"Twice the batch takes {twice / once:.2f} times as long: about"
                    f" {cost:.1f} ms of a step go into starting small operations."
                ),
                where=next((mode["where"] for mode in facts.get("modes", {}).values()), None),
                cost_ms=cost,
                fix="torch.compile(model, mode='reduce-overhead'), or a larger batch.",
                fix_class="N",
                gain=Gain(0.0, cost),
            )
        ]
    return []
