"""`float64-model`: numbers of twice the size that training needs."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "float64-model"
HEALTHY = "no model computes in float64"


def find(case: Case) -> list[Finding]:
    """Measured against float32."""
    gain = compared(case, "float32", learning_ms(case))
    if gain is None or not gain.is_sure or not case.matters(gain.cost_ms):
        return []
    facts = facts_of(case, gain.replay["model"])
    modes = facts.get("modes", {})
    return [
        Finding(
            rule=NAME,
            title=(
                f"{facts.get('class', 'The model')} computes in float64: {gain.cost_ms:.1f} ms of a"
                " step more than in float32."
            ),
            where=next((mode["where"] for mode in modes.values()), None),
            cost_ms=gain.cost_ms,
            fix="model.float(), and float32 batches.",
            fix_class="N",
            gain=gain.gain,
        )
    ]
