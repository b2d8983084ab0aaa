"""`conv-bias-before-norm`: biases are added, and learned, that a batch norm takes away again."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "conv-bias-before-norm"
HEALTHY = "no bias is taken away by the batch norm behind it"
_SHARE = 0.05


def find(case: Case) -> list[Finding]:
    """Measured without these biases."""
    gain = compared(case, "without-bias", learning_ms(case))
    if gain is None or not gain.is_sure or gain.cost_ms < _SHARE * case.step_ms:
        return []
    if not case.matters(gain.cost_ms):
        return []
    count = gain.replay["layers"]
    name = facts_of(case, gain.replay["model"]).get("class", "the model")
    return [
        Finding(
            rule=NAME,
            title=(
                f"{count} convolution{'s' if count > 1 else ''} of {name} add a"
                f" bias that a batch norm takes away: {gain.cost_ms:.1f} ms of a step."
            ),
            where=gain.replay["where"],
            cost_ms=gain.cost_ms,
            fix="Conv2d(..., bias=False) before a batch norm.",
            fix_class="S",
            gain=gain.gain,
        )
    ]
