"""`repeated-work`: what belongs before the loop is made again in every step."""

from slipstream.doctor.attribute import Step
from slipstream.doctor.capture import CALL
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "repeated-work"
HEALTHY = "nothing is set up again in the loop"
_SETUP = ("Module.to", "Optimizer()", "torch.compile", "load_state_dict")
_OFTEN = 0.5


def find(case: Case) -> list[Finding]:
    """Setup calls in at least every other step."""
    steps = case.attribution.steps
    calls = [call for call in case.calls(*_SETUP) if _count(steps, call.id) >= _OFTEN * len(steps)]
    cost = sum(case.call_ms(call) for call in calls)
    if not calls or not case.matters(cost):
        return []
    names = ", ".join(dict.fromkeys(call.what for call in calls))
    return [
        Finding(
            rule=NAME,
            title=f"Setup is done again in the loop ({names}): {cost:.1f} ms of a step.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix="Do it once, before the loop.",
            fix_class="S",
            gain=Gain(cost, cost),
        )
    ]


def _count(steps: tuple[Step, ...], call: int) -> int:
    return sum(span.kind == CALL and span.detail == call for step in steps for span in step.spans)
