"""`non-contiguous-input`: a convolution is given a view whose elements do not lie side by side."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.layouts import slow_layers

NAME = "non-contiguous-input"
HEALTHY = "convolutions are given what lies side by side in memory"


def find(case: Case) -> list[Finding]:
    """Measured: the same layer on the same values, laid side by side."""
    slow = slow_layers(case, "other")
    cost = sum(entry.cost_ms for entry in slow)
    if not slow or not case.matters(cost):
        return []
    first = slow[0].replay
    return [
        Finding(
            rule=NAME,
            title=(
                f"{first['kind']} {first['layer']!r} is given a tensor that is not contiguous:"
                f" {cost:.1f} ms of a step."
            ),
            where=first["where"],
            places=tuple(entry.replay["where"] for entry in slow[1:] if entry.replay["where"]),
            cost_ms=cost,
            fix="Make it contiguous where it is made: collate_fn, or .contiguous() in a worker.",
            fix_class="E",
            gain=Gain(sum(e.low_ms for e in slow), sum(e.high_ms for e in slow), "measured"),
        )
    ]
