"""`launch-bound`: a step is a long list of small operations, and starting them takes the time."""

import statistics

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import replays

NAME = "launch-bound"
HEALTHY = "the device has enough to do in every operation"
_GROWS = 1.3  # with twice the batch, where the work itself takes the time, it doubles


def find(case: Case) -> list[Finding]:
    """Twice the batch takes hardly longer: the work of one takes at most half of that."""
    if not case.on_device:
        return []
    for replay in replays(case, "double-batch"):
        once, twice = statistics.median(replay["now_ms"]), statistics.median(replay["then_ms"])
        cost = learning_ms(case) * (1 - twice / once / 2)
        if twice > _GROWS * once or not case.matters(cost):
            continue
        facts = facts_of(case, replay["model"])
        return [
            Finding(
                rule=NAME,
                title=(
                    f"Twice the batch takes {twice / once:.2f} times as long: at least"
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
