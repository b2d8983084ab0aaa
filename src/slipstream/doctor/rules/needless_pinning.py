"""`needless-pinning`: memory is page-locked in the loop, which takes longer than the copy."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "needless-pinning"
HEALTHY = "nothing is page-locked in the loop"


def find(case: Case) -> list[Finding]:
    """pin_memory() called by the loop itself."""
    if not case.on_device:
        return []
    calls = case.calls("Tensor.pin_memory")
    cost = sum(case.call_ms(call) for call in calls)
    if not calls or not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f".pin_memory() in the loop takes {cost:.1f} ms of a step.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix="Leave it to the loader: DataLoader(..., pin_memory=True).",
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]
