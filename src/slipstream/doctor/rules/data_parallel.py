"""`data-parallel`: one process copies the model to every device, in every step."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "data-parallel"
HEALTHY = "no model is copied to several devices in every step"


def find(case: Case) -> list[Finding]:
    """nn.DataParallel, against the same passes on the model itself; where these could not be run,
    by what scattering, copying and gathering take.
    """
    if not case.on_device:
        return []
    calls = case.calls("DataParallel.replicate", "DataParallel.scatter", "DataParallel.gather")
    replayed = compared(case, NAME, learning_ms(case))
    cost = replayed.cost_ms if replayed else sum(case.call_ms(call) for call in calls)
    if not calls or not case.matters(cost) or (replayed and not replayed.is_sure):
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
            # Exchanging gradients between processes takes a part of it again.
            gain=Gain(0.0, replayed.high_ms if replayed else cost),
        )
    ]
