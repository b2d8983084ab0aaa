"""`blocking-copy`: the loop waits for a copy that could run by itself."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.device_idle import caused_ms, copies, is_blocking, is_pageable

NAME = "blocking-copy"
HEALTHY = "copies to the device do not hold the loop up"


def find(case: Case) -> list[Finding]:
    """Page-locked, and waited for: the device idles until the loop goes on."""
    if not case.on_device:
        return []
    calls = [call for call in copies(case) if is_blocking(call) and not is_pageable(call)]
    cost = sum(caused_ms(case, calls).values())
    if not calls or not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"Waiting for copies to the device costs it {cost:.1f} ms of a step.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix=".to(device, non_blocking=True); never for copies to the processor.",
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]
