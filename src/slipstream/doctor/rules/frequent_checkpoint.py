"""`frequent-checkpoint`: the loop waits while its model is written, or copied, to be kept."""

from slipstream.doctor.capture import SAVE
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.record.writers import CHECKPOINTS
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.own_code import own_lines

NAME = "frequent-checkpoint"
HEALTHY = "checkpoints do not hold the loop up"


def find(case: Case) -> list[Finding]:
    """Saves inside of steps, and copies of the model's state."""
    costs = {call.where: case.call_ms(call) for call in case.calls(*CHECKPOINTS)}
    for line in own_lines(case):
        if "state" in line.does and not line.over_parameters:
            costs[line.where] = costs.get(line.where, 0.0) + line.ms
    places = sorted((w for w in costs if w and costs[w] > 0), key=lambda w: -costs[w])
    cost = sum(costs.values())
    if not places or not case.matters(cost):
        return []
    count = sum(span.kind == SAVE for step in case.attribution.steps for span in step.spans)
    if count == 1:
        return []
    every = len(case.attribution.steps) / count if count else None
    often = f"every {every:.0f} steps" if every and every >= 1.5 else "in every step"
    return [
        Finding(
            rule=NAME,
            title=(
                f"The model's state is kept {often}, and the loop waits for it: {cost:.1f} ms"
                " of a step."
            ),
            where=places[0],
            places=tuple(places[1:]),
            cost_ms=cost,
            fix="Keep it less often, or write a copy of it in a thread.",
            fix_class="S",
            gain=Gain(0.0, cost),
        )
    ]
