"""`forced-garbage-collection`: gc.collect() in the loop."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "forced-garbage-collection"
HEALTHY = "gc.collect() is not called in the loop"


def find(case: Case) -> list[Finding]:
    """Calls of it inside of steps."""
    calls = case.calls("gc.collect")
    cost = sum(case.call_ms(call) for call in calls)
    if not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"gc.collect() takes {cost:.1f} ms of a step.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:] if call.where),
            cost_ms=cost,
            fix="Leave it out: tensors are freed when the last name of them is gone.",
            fix_class="E",
            gain=Gain(cost, cost),
        )
    ]
