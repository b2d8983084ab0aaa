"""`pageable-copy`: batches go to the device from memory that is not page-locked."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.device_idle import copies, is_pageable

NAME = "pageable-copy"
HEALTHY = "batches are copied from page-locked memory"


def find(case: Case) -> list[Finding]:
    """Copies that the driver must stage, by what the device waits for them."""
    if not case.on_device:
        return []
    calls = [call for call in copies(case) if is_pageable(call)]
    cost = sum(case.call_ms(call) for call in calls)
    if not calls or not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"Batches are copied from pageable memory: {cost:.1f} ms of a step.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix="DataLoader(..., pin_memory=True), and .to(device, non_blocking=True).",
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]
