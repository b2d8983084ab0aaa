"""`unused-parameters`: layers are computed whose results the loss does not depend on."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import compare, replays

NAME = "unused-parameters"
HEALTHY = "every layer that is computed takes part in the loss"


def find(case: Case) -> list[Finding]:
    """Layers that can learn, ran, and got no gradient."""
    unused = sorted(
        (compare(replay) for replay in replays(case, "unused-layer")), key=lambda c: -c.cost_ms
    )
    cost = sum(entry.cost_ms for entry in unused)
    if not unused or not case.matters(cost):
        return []
    names = ", ".join(entry.replay["layer"] for entry in unused[:3])
    return [
        Finding(
            rule=NAME,
            title=f"{names}: computed, and no part of the loss: {cost:.1f} ms of a step.",
            where=unused[0].replay["where"],
            cost_ms=cost,
            fix="Leave these layers out while training.",
            fix_class="S",
            gain=Gain(
                sum(max(0.0, e.low_ms) for e in unused), sum(e.high_ms for e in unused), "measured"
            ),
        )
    ]
