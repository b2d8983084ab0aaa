"""`channels-last`: convolutions would be faster with the channels of a pixel side by side."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules import mixed_memory_format, non_contiguous_input
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "channels-last"
HEALTHY = "another order in memory would not make convolutions much faster"
# The usual order is no fault: named only where it costs a good part of the step.
_SHARE = 0.50


def find(case: Case) -> list[Finding]:
    """Measured with model and batch in this order."""
    if case.on_device:
        return []  # nchw-on-tensor-cores says it
    gain = compared(case, "channels-last", learning_ms(case))
    if gain is None or gain.low_ms < _SHARE / 2 * case.step_ms:
        return []
    if gain.cost_ms < _SHARE * case.step_ms:
        return []
    if mixed_memory_format.find(case) or non_contiguous_input.find(case):
        return []  # that comes first, and changes this
    facts = facts_of(case, gain.replay["model"])
    return [
        Finding(
            rule=NAME,
            title=(
                f"{facts.get('class', 'The model')} has {facts.get('convolutions')} convolutions in"
                f" channels-first order: {gain.cost_ms:.1f} ms of a step more than channels-last."
            ),
            where=next((mode["where"] for mode in facts.get("modes", {}).values()), None),
            cost_ms=gain.cost_ms,
            fix="model.to(memory_format=torch.channels_last), and the same for the batches.",
            fix_class="N",
            gain=gain.gain,
        )
    ]
