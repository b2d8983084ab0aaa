"""`copy-on-critical-path`: the device copies, and does nothing else meanwhile."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.device_idle import copies, is_blocking, is_pageable

NAME = "copy-on-critical-path"
HEALTHY = "copies run beside the work of the device"


def find(case: Case) -> list[Finding]:
    """Page-locked, not waited for, and still in line with the work."""
    if not case.on_device:
        return []
    calls = [call for call in copies(case) if not is_blocking(call) and not is_pageable(call)]
    cost = sum(case.call_ms(call) for call in calls)
    if not calls or not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"Copies stand in line with the work of the device: {cost:.1f} ms of a step.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix="Copy the next batch on a stream of its own: slipstream.Loader does.",
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]
