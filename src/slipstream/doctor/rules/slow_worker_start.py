"""`slow-worker-start`: each worker begins as a new Python, and imports everything again."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import is_worth
from slipstream.doctor.rules.restarts import restarts_of

NAME = "slow-worker-start"
HEALTHY = "workers are ready at once"
_LEAST_MS = 500.0
_FORK_MS = 30.0  # for each worker


def find(case: Case) -> list[Finding]:
    """Workers that are spawned, and take long before they read."""
    found = []
    for restarts in restarts_of(case):
        loader = restarts.loader
        if loader.start_method not in ("spawn", "forkserver") or loader.length is None:
            continue
        needless = restarts.extra_ms - _FORK_MS * loader.workers
        cost = needless / max(1.0, restarts.steps)
        if needless < _LEAST_MS or not is_worth(case, cost):
            continue
        found.append(
            Finding(
                rule=NAME,
                title=(
                    f"{loader.workers} workers need {restarts.extra_ms / 1000:.1f} s before the"
                    f" first batch: with {loader.start_method!r} each imports the script and"
                    f" unpickles {loader.dataset} anew."
                ),
                where=loader.made_at,
                cost_ms=cost,
                fix=(
                    'multiprocessing_context="fork" where it is safe; else few imports in the'
                    " script, little data in the dataset, and persistent_workers=True."
                ),
                fix_class="S",
                gain=Gain(0.5 * cost, cost),
            )
        )
    return found
