"""`nchw-on-tensor-cores`: convolutions in an order that tensor cores must convert."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "nchw-on-tensor-cores"
HEALTHY = "convolutions lie in memory as tensor cores like it"

_SHARE = 0.05


def find(case: Case) -> list[Finding]:
    """Measured with model and batch in channels-last order."""
    if not case.on_device:
        return []
    gain = compared(case, "channels-last", learning_ms(case))
    if gain is None or not gain.is_sure:
        return []
    cost = gain.cost_ms
    if cost < _SHARE * case.step_ms or not case.matters(cost):
        return []
    facts = facts_of(case, gain.replay["model"])
    return [
        Finding(
            rule=NAME,
            title=f"Convolutions in channels-first order take {cost:.1f} ms of a step more.",
            where=next((mode["where"] for mode in facts.get("modes", {}).values()), None),
            cost_ms=cost,
            fix="model.to(memory_format=torch.channels_last), and the same for the batches.",
            fix_class="N",
            gain=gain.gain,
        )
    ]
