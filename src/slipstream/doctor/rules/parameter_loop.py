"""`parameter-loop`: a loop in Python over all parameters, a small operation for each."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.own_code import own_lines, places

NAME = "parameter-loop"
HEALTHY = "nothing loops over the parameters in Python"
_LEAST_SAMPLES = 5


def find(case: Case) -> list[Finding]:
    """Averages, penalties, clipping and the like, outside of the optimizer."""
    lines = [line for line in own_lines(case) if line.over_parameters]
    cost = sum(line.ms for line in lines)
    if not case.matters(cost) or sum(line.samples for line in lines) < _LEAST_SAMPLES:
        return []
    found = places(lines)
    return [
        Finding(
            rule=NAME,
            title=f"A loop in Python over the parameters takes {cost:.1f} ms of a step.",
            where=found[0],
            places=(*found[1:3], *dict.fromkeys(line.where for line in lines[:3])),
            cost_ms=cost,
            fix=(
                "One call for all of them: torch._foreach_lerp_, torch._foreach_norm,"
                " clip_grad_norm_, swa_utils.AveragedModel, weight_decay=."
            ),
            fix_class="N",
            gain=Gain(0.0, cost),
        )
    ]
