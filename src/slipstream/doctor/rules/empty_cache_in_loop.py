"""`empty-cache-in-loop`: device memory is given back and fetched again in every step."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "empty-cache-in-loop"
HEALTHY = "torch.cuda.empty_cache() is not called in the loop"


def find(case: Case) -> list[Finding]:
    """Calls of it inside of steps; that what follows must ask the driver again comes on top."""
    calls = case.calls("torch.cuda.empty_cache")
    cost = sum(case.call_ms(call) for call in calls)
    if not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"torch.cuda.empty_cache() takes {cost:.1f} ms of a step; what follows pays.",
            where=calls[0].where,
            cost_ms=cost,
            fix="Leave it out: the cache is there to be used again.",
            fix_class="E",
            gain=Gain(cost, cost),
        )
    ]
