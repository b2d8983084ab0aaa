"""`loader-recreated`: the same loader is made again and again, and its workers with it."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import is_worth
from slipstream.doctor.rules.restarts import restarts_of

NAME = "loader-recreated"
HEALTHY = "a loader is made once"


def find(case: Case) -> list[Finding]:
    """Loaders over the same data, made by the same line, one after the other."""
    return [
        Finding(
            rule=NAME,
            title=(
                f"This line has made {r.loader.facts['made']} loaders over the same data; each"
                f" starts {r.loader.workers} workers, which takes {r.extra_ms:.0f} ms, for"
                f" {r.steps:.0f} steps."
            ),
            where=r.loader.made_at,
            cost_ms=r.cost_ms,
            fix="Make it once, before the loop over epochs, with persistent_workers=True.",
            fix_class="S",
            gain=Gain(0.7 * r.cost_ms, r.cost_ms),
        )
        for r in restarts_of(case)
        if r.loader.facts.get("made", 1) > 1 and is_worth(case, r.cost_ms)
    ]
