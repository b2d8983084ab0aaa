"""`mixed-memory-format`: weights lie in one order, inputs in another, and layers convert."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.layouts import slow_layers

NAME = "mixed-memory-format"
HEALTHY = "convolutions get inputs in the order of their weights"


def find(case: Case) -> list[Finding]:
    """Measured: the same layer on the same values, in the order of its weights."""
    slow = slow_layers(case, "contiguous", "channels_last")
    cost = sum(entry.cost_ms for entry in slow)
    if not slow or not case.matters(cost):
        return []
    first = slow[0].replay
    return [
        Finding(
            rule=NAME,
            title=(
                f"{first['kind']} {first['layer']!r} has {first['weights']} weights and is given"
                f" {first['layout']} inputs: {cost:.1f} ms of a step."
            ),
            where=first["where"],
            places=tuple(entry.replay["where"] for entry in slow[1:] if entry.replay["where"]),
            cost_ms=cost,
            fix="One memory_format for the model and its batches, and no .contiguous() between.",
            fix_class="N",
            gain=Gain(sum(e.low_ms for e in slow), sum(e.high_ms for e in slow), "measured"),
        )
    ]
