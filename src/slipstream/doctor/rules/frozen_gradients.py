"""`frozen-gradients`: gradients are computed for parameters that no optimizer changes."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import compare, compared, replays

NAME = "frozen-gradients"
HEALTHY = "every gradient that is computed is used"


def find(case: Case) -> list[Finding]:
    """Measured with these parameters frozen."""
    return [*_of_parts(case), *_of_teachers(case)]


def _of_parts(case: Case) -> list[Finding]:
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


def _of_teachers(case: Case) -> list[Finding]:
    """Models that are only asked, never trained, whose answers the loss is made of."""
    found = []
    for replay in replays(case, "only-teaches"):
        gain = compare(replay)
        if not gain.is_sure or not case.matters(gain.cost_ms):
            continue
        facts = facts_of(case, replay["model"])
        found.append(
            Finding(
                rule=NAME,
                title=(
                    f"{facts.get('class', 'A model')} is in no optimizer, and gets gradients all"
                    f" the same: {gain.cost_ms:.1f} ms of a step, and the memory of its"
                    " activations."
                ),
                where=facts.get("modes", {}).get("eval", {}).get("where"),
                cost_ms=gain.cost_ms,
                fix="with torch.no_grad(): around the calls of what only teaches.",
                fix_class="E",
                gain=gain.gain,
            )
        )
    return found
