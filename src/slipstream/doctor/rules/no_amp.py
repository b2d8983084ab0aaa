"""`no-amp`: a model in float32 on a device with tensor cores."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "no-amp"
HEALTHY = "lower precision would not gain much"

_SHARE = 0.05


def find(case: Case) -> list[Finding]:
    """Measured under autocast to bfloat16, less what TF32 alone gains."""
    if not case.on_device:
        return []
    gain = compared(case, "amp", learning_ms(case))
    if gain is None or not gain.is_sure:
        return []
    cost = gain.cost_ms - _of_tf32(case)
    if cost < _SHARE * case.step_ms or not case.matters(cost):
        return []
    facts = facts_of(case, gain.replay["model"])
    return [
        Finding(
            rule=NAME,
            title=f"In float32 a step takes {cost:.1f} ms more than under autocast to bfloat16.",
            where=next((mode["where"] for mode in facts.get("modes", {}).values()), None),
            cost_ms=cost,
            fix="torch.autocast('cuda', dtype=torch.bfloat16) around the forward pass.",
            fix_class="N",
            gain=gain.gain,
        )
    ]


def _of_tf32(case: Case) -> float:
    gain = compared(case, "tf32", learning_ms(case))
    return gain.cost_ms if gain is not None and gain.is_sure else 0.0
