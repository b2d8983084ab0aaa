"""`too-many-workers`: more workers than cores; they and the loop wait for their turn."""

import statistics

from slipstream.doctor.attribute import Loading
from slipstream.doctor.capture import NEXT
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth

NAME = "too-many-workers"
HEALTHY = "workers find cores to run on"
_LEAST_DELAY = 0.4  # of a batch


def find(case: Case) -> list[Finding]:
    """Workers that share cores all come late with their first batch, and keep the loop from its
    own. Where no core is ever idle, nothing is lost by that: fewer had the same to do.
    """
    loading = feed(case)
    if loading is None or loading.loader.workers <= max(2, case.cores):
        return []
    if loading.delay_ms < _LEAST_DELAY * loading.batch_ms:
        return []
    late, waited = _late_ms(case, loading), _waited_ms(case, loading)
    length = loading.loader.length or 0
    # The loop waits for its core while an epoch begins, above all: that is counted once.
    cost = min(max(waited, late / length if length else 0.0), _idle_ms(case, loading))
    if not is_worth(case, cost):
        return []
    best = _best(case)
    effects = [f"they wait {loading.delay_ms / loading.batch_ms:.0%} of the time for one"]
    if late >= 1:
        effects.append(f"each epoch begins {late:.0f} ms late")
    if waited >= 0.1:
        effects.append(f"the loop itself waits {waited:.1f} ms a step")
    return [
        Finding(
            rule=NAME,
            title=(
                f"{loading.loader.workers} workers share {case.cores} cores:"
                f" {', and '.join(effects)}."
            ),
            where=loading.loader.made_at,
            cost_ms=cost,
            fix=f"num_workers={best}, or slipstream.Loader, which finds the number by itself.",
            fix_class="N",
            gain=Gain(0.0, cost),
        )
    ]


def _best(case: Case) -> int:
    return max(1, case.cores if case.on_device else case.cores - 1)


def _waited_ms(case: Case, loading: Loading) -> float:
    """Of a step, by the loop. Fewer workers leave it its core, but have to make as many batches."""
    waited = case.loop_delay_ms
    then = max(case.rest_ms - waited + loading.hand_over_ms, loading.cpu_ms / _best(case))
    return max(0.0, min(waited, case.step_ms - then))


def _late_ms(case: Case, loading: Loading) -> float:
    """By which the first batch of an epoch comes later than from workers with a core each. Of what
    was waited only as much as sharing explains.
    """
    loader = loading.loader
    length, waits = loader.length, _first_waits_ms(case, loader.id)[1:]
    if not length or not waits or not (loader.persistent or loader.start_method == "fork"):
        return 0.0  # workers that import everything again are late for another reason
    at_once = min(loader.workers, length)
    shared = loading.cpu_ms * at_once / case.cores + loading.blocked_ms
    alone = loading.cpu_ms + loading.blocked_ms
    return max(0.0, min(statistics.median(waits), shared) - alone)


def _first_waits_ms(case: Case, loader: int) -> list[float]:
    """For the first batch of each epoch."""
    return [
        (span.end - span.start) * 1e-6
        for span in case.capture.spans
        if span.kind == NEXT and span.detail[0] == loader and span.detail[2] == 0
    ]


def _idle_ms(case: Case, loading: Loading) -> float:
    """Of a step: how long the cores would be idle, taken together."""
    used = case.capture.settings.get("used")
    if not used:
        return max(0.0, case.step_ms - loading.cpu_ms / case.cores)
    if case.cores < used["cores"]:  # a quota: what others use is not ours
        busy = used["own"] / case.cores
    else:
        busy = (used["own"] + used["others"]) / used["cores"]
    return float(max(0.0, 1.0 - busy) * case.step_ms)
