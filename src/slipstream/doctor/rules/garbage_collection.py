"""`garbage-collection`: Python stops the loop to look for unreachable objects."""

from slipstream.doctor.capture import CALL, GARBAGE, Span
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "garbage-collection"
HEALTHY = "Python's garbage collection takes no time that counts"
_LEAST_PAUSES = 2  # one may be chance: objects of the start that are looked at once more
_LONG = 5_000_000
_SHARE = 0.05


def find(case: Case) -> list[Finding]:
    """Pauses that the script has not asked for."""
    pauses = [span for step in case.attribution.steps for span in automatic(list(step.spans))]
    steps = len(case.attribution.steps)
    cost = sum(span.end - span.start for span in pauses) * 1e-6 / max(1, steps)
    long = [span for span in pauses if span.end - span.start > _LONG]
    if len(long) < _LEAST_PAUSES or not case.matters(cost) or cost < _SHARE * case.step_ms:
        return []
    longest = max(span.end - span.start for span in pauses) * 1e-6
    return [
        Finding(
            rule=NAME,
            title=(
                f"Python's garbage collector takes {cost:.1f} ms of a step, in {len(pauses)}"
                f" pauses of up to {longest:.0f} ms."
            ),
            where=None,
            cost_ms=cost,
            fix="gc.freeze() after the setup, and gc.disable() with gc.collect() once an epoch.",
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]


def automatic(spans: list[Span]) -> list[Span]:
    """Collections outside of `gc.collect()` and other calls."""
    calls = [span for span in spans if span.kind == CALL]
    return [
        span
        for span in spans
        if span.kind == GARBAGE and not any(c.start <= span.start < c.end for c in calls)
    ]
