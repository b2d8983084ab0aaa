"""`no-tf32`: float32 products without the tensor cores."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "no-tf32"
HEALTHY = "float32 uses the tensor cores, or would not gain"

_SHARE = 0.05


def find(case: Case) -> list[Finding]:
    """Measured with TF32."""
    if not case.on_device:
        return []
    gain = compared(case, "tf32", learning_ms(case))
    if gain is None or not gain.is_sure:
        return []
    cost = gain.cost_ms
    if cost < _SHARE * case.step_ms or not case.matters(cost):
        return []
    facts = facts_of(case, gain.replay["model"])
    return [
        Finding(
            rule=NAME,
            title=f"Products in full float32 take {cost:.1f} ms of a step more than in TF32.",
            where=next((mode["where"] for mode in facts.get("modes", {}).values()), None),
            cost_ms=cost,
            fix="torch.set_float32_matmul_precision('high').",
            fix_class="N",
            gain=gain.gain,
        )
    ]
