"""`workers-restarted`: every epoch begins with new workers."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import is_worth
from slipstream.doctor.rules.restarts import restarts_of

NAME = "workers-restarted"
HEALTHY = "workers live on from epoch to epoch"


def find(case: Case) -> list[Finding]:
    """A loader that is iterated over again and again, without persistent_workers."""
    found = [
        restarts
        for restarts in restarts_of(case)
        if restarts.count > 1
        and not restarts.loader.persistent
        and restarts.loader.facts.get("made", 1) <= 1
        and is_worth(case, restarts.cost_ms)
    ]
    return [
        Finding(
            rule=NAME,
            title=(
                f"{r.loader.workers} workers were started {r.count} times; each start takes"
                f" {r.extra_ms:.0f} ms, for {r.steps:.0f} steps."
            ),
            where=r.loader.made_at,
            cost_ms=r.cost_ms,
            fix="DataLoader(..., persistent_workers=True), or slipstream.Loader.",
            fix_class="N",
            gain=Gain(0.7 * r.cost_ms, r.cost_ms),
        )
        for r in found
    ]
