"""`deterministic-mode`: slower algorithms that always add up in the same order."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "deterministic-mode"
HEALTHY = "deterministic algorithms are off, or cost nothing"


def find(case: Case) -> list[Finding]:
    """Where the switch is on, and turning it off was measured to gain."""
    gain = compared(case, "deterministic", learning_ms(case))
    if gain is None or not gain.is_sure or not case.matters(gain.cost_ms):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"Deterministic algorithms take {gain.cost_ms:.1f} ms of a step.",
            where=None,
            cost_ms=gain.cost_ms,
            fix="torch.use_deterministic_algorithms(False), unless runs must repeat bit for bit.",
            fix_class="N",
            gain=gain.gain,
        )
    ]
