"""`frozen-gradients`: gradients are computed for parameters that no optimizer changes."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "frozen-gradients"
HEALTHY = "every gradient that is computed is used"


def find(case: Case) -> list[Finding]:
    """Measured with these parameters frozen."""
    gain = compared(case, "frozen", learning_ms(case))
    if gain is None or not gain.is_sure or not case.matters(gain.cost_ms):
        return []
    facts = facts_of(case, gain.replay["model"])
    is_clipped = bool(case.calls("clip_grad_norm_"))
    return [
        Finding(
            rule=NAME,
            title=(
                f"{facts.get('unasked', 'Some')} parameters of {facts.get('class', 'the model')}"
                f" get gradients, and no optimizer has them: {gain.cost_ms:.1f} ms of a step."
            ),
            where=next((o["made_at"] for o in case.capture.optimizers if o.get("made_at")), None),
            cost_ms=gain.cost_ms,
            fix="requires_grad_(False) for what is not trained.",
            # Their gradients are part of the norm that the others are clipped by.
            fix_class="S" if is_clipped else "E",
            gain=gain.gain,
        )
    ]
