"""`timer-without-sync`: a clock is read while the device still works, and shows too little."""

from slipstream.doctor.capture import BACKWARD, CALL, FORWARD, OPTIMIZER, SYNC, Span
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "timer-without-sync"
HEALTHY = "no clock is read while the device still works"
_WORK = (FORWARD, BACKWARD, OPTIMIZER)


def find(case: Case) -> list[Finding]:
    """A timer read after work of the device, with no wait between. It costs no time: it lies."""
    if not case.on_device:
        return []
    timers = {call.id: call for call in case.calls("timer")}
    wrong: dict[int, int] = {}
    for step in case.attribution.steps:
        for timer in _unsynchronized(step.spans, set(timers)):
            wrong[timer] = wrong.get(timer, 0) + 1
    often = [k for k, count in wrong.items() if count * 2 > len(case.attribution.steps)]
    if not often or sum(call.count for call in timers.values()) < 2 * len(case.attribution.steps):
        return []
    return [
        Finding(
            rule=NAME,
            title="A clock is read before the device is done: it shows the time of the launches.",
            where=timers[often[0]].where,
            cost_ms=0.0,
            fix="torch.cuda.synchronize() before the clock, or slipstream.Timer.",
            fix_class="S",
            gain=Gain(0.0, 0.0),
        )
    ]


def _unsynchronized(spans: tuple[Span, ...], timers: set[int]) -> list[int]:
    """Timers whose last neighbour that matters is work, and not a wait."""
    found = []
    last = ""
    for span in spans:
        if span.kind in _WORK or span.kind == SYNC:
            last = span.kind
        elif span.kind == CALL and span.detail in timers and last in _WORK:
            found.append(span.detail)
    return found
