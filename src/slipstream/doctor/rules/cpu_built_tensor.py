"""`cpu-built-tensor`: tensors are made by the processor and copied to the device."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.device_idle import COPIES, built_lines, idle_ms
from slipstream.doctor.rules.own_code import own_lines

NAME = "cpu-built-tensor"
HEALTHY = "tensors are made where they are used"


def find(case: Case) -> list[Finding]:
    """Copies on lines that make what they copy: making it, and waiting for the copy."""
    lines = built_lines(case)
    calls = [call for call in case.calls(*COPIES) if call.where in lines]
    idle = idle_ms(case)
    cost = sum(idle.get(call.id, 0.0) for call in calls)
    cost += sum(line.ms for line in own_lines(case) if line.where in lines)
    if not calls or not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"Tensors are made on the processor and copied in every step: {cost:.1f} ms.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix="Make them on the device: torch.zeros(..., device=device).",
            fix_class="N",
            gain=Gain(0.0, cost),
        )
    ]
