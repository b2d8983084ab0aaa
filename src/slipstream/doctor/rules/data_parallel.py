"""`data-parallel`: one process copies the model to every device, in every step."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "data-parallel"
HEALTHY = "no model is copied to several devices in every step"


def find(case: Case) -> list[Finding]:
    """nn.DataParallel, by what scattering, copying and gathering take."""
    if not case.on_device:
        return []
    calls = case.calls("DataParallel.replicate", "DataParallel.scatter", "DataParallel.gather")
    cost = sum(case.call_ms(call) for call in calls)
    if not calls or not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"nn.DataParallel copies model, batch and results in every step: {cost:.1f} ms.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix="One process for each device: DistributedDataParallel.",
            fix_class="S",
            gain=Gain(0.0, cost),
        )
    ]
