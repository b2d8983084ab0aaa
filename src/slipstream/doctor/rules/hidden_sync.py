"""`hidden-sync`: an operation whose result has a size, or a truth, that only the device knows."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.device_idle import HIDDEN, caused_ms

NAME = "hidden-sync"
HEALTHY = "no operation waits for the device unseen"


def find(case: Case) -> list[Finding]:
    """By the time that the device idles because of it."""
    if not case.on_device:
        return []
    idle = caused_ms(case, case.calls(*HIDDEN))
    calls = sorted(
        (call for call in case.calls(*HIDDEN) if idle.get(call.id)), key=lambda call: -idle[call.id]
    )
    cost = sum(idle.values())
    if not calls or not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"{calls[0].what} waits for the device; it then idles {cost:.1f} ms a step.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix="torch.where in place of masks and branches; sizes that are known before.",
            fix_class="N",
            gain=Gain(0.0, cost),
        )
    ]
