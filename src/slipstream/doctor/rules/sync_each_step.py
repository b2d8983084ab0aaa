"""`sync-each-step`: the loop reads a value, and the device idles until it gets new work."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.device_idle import OPEN, caused_ms

NAME = "sync-each-step"
HEALTHY = "the loop does not wait for the device"


def find(case: Case) -> list[Finding]:
    """By the time that the device idles because of it, not the time that the loop waits."""
    if not case.on_device:
        return []
    idle = caused_ms(case, case.calls(*OPEN))
    calls = sorted(
        (call for call in case.calls(*OPEN) if idle.get(call.id)), key=lambda call: -idle[call.id]
    )
    cost = sum(idle.values())
    if not calls or not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"{calls[0].what} makes the loop wait: the device idles {cost:.1f} ms a step.",
            where=calls[0].where,
            places=tuple(call.where for call in calls[1:4] if call.where),
            cost_ms=cost,
            fix="Read values every n steps, or a step later: keep loss.detach() until then.",
            fix_class="S",
            gain=Gain(0.0, cost),
        )
    ]
