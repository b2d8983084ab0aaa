"""`hot-device`: heat makes the GPU slow down."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import replays

NAME = "hot-device"
HEALTHY = "no heat was seen to slow the device down"
_SHARE = 0.1


def find(case: Case) -> list[Finding]:
    """Counted by the driver: for how long it held the clocks down. How far it does not say."""
    steps = len(case.attribution.steps)
    for seen in replays(case, "device"):
        slowed = min(seen["slowed"] * 1e-6 / max(1, steps), case.step_ms)
        if not case.on_device or slowed < _SHARE * case.step_ms:
            continue
        return [
            Finding(
                rule=NAME,
                title=f"For {slowed / case.step_ms:.0%} of the time heat slowed the device down.",
                where=None,
                cost_ms=0.0,
                fix="Better cooling, or a lower power limit, which keeps clocks steady.",
                fix_class="E",
                gain=Gain(0.0, slowed),
            )
        ]
    return []
