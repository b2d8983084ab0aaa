"""`small-batch`: a batch so small that the overhead of a step is most of it."""

import statistics

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import replays

NAME = "small-batch"
HEALTHY = "a batch is large enough for what a step costs by itself"
_LARGEST = 2
_GROWS = 1.2


def find(case: Case) -> list[Finding]:
    """Of one or two samples, where twice as many take hardly longer."""
    if case.on_device:
        return []  # launch-bound says it
    for replay in replays(case, "double-batch"):
        once, twice = statistics.median(replay["now_ms"]), statistics.median(replay["then_ms"])
        cost = learning_ms(case) * (1 - twice / once / 2)
        if replay["batch"] > _LARGEST or twice > _GROWS * once or not case.matters(cost):
            continue
        return [
            Finding(
                rule=NAME,
                title=(
                    f"A batch of {replay['batch']}: twice as many samples take"
                    f" {twice / once:.2f} times as long, {cost:.1f} ms of a step are overhead."
                ),
                where=case.loading.loader.made_at if case.loading is not None else None,
                cost_ms=cost,
                fix="A larger batch, with a learning rate to match.",
                fix_class="S",
                gain=Gain(0.0, cost, "measured"),
            )
        ]
    return []
