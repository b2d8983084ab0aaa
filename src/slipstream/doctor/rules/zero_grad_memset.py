"""`zero-grad-memset`: gradients are filled with zeros where they could just be dropped."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import compared

NAME = "zero-grad-memset"
HEALTHY = "gradients are dropped, not filled with zeros"


def find(case: Case) -> list[Finding]:
    """zero_grad(set_to_none=False), and the backward pass that adds to the zeros."""
    calls = case.calls("zero_grad(set_to_none=False)")
    filled = sum(case.call_ms(call) for call in calls)
    if not filled:
        return []
    added = compared(case, "add-to-zeros", case.attribution.of("backward"))
    cost = filled + (added.cost_ms if added is not None and added.is_sure else 0.0)
    if not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"Gradients are filled with zeros and added to: {cost:.1f} ms of a step.",
            where=calls[0].where,
            cost_ms=cost,
            fix="zero_grad(), which sets them to None by default.",
            fix_class="E",
            gain=Gain(filled, cost, "measured"),
        )
    ]
