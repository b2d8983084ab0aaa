"""`too-few-workers`: workers are busy all the time, cores are idle, and the loop waits."""

import math

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "too-few-workers"
HEALTHY = "workers keep up with the loop"
_BUSY = 0.8


def find(case: Case) -> list[Finding]:
    """The loop waits for workers that never rest, and more of them would find cores to run on."""
    loading = case.loading
    if loading is None or not loading.loader.workers or loading.loader.kind == "slipstream":
        return []
    if not case.matters(case.waits_ms) or loading.batch_ms <= 0:
        return []
    workers = loading.loader.workers
    busy = loading.batch_ms / workers / case.step_ms
    if busy < _BUSY:
        return []
    cpu_share = min(1.0, loading.cpu_ms / loading.batch_ms)
    wanted = math.ceil(loading.batch_ms / max(case.rest_ms, 1e-3))
    # Workers that wait for storage need no core of their own.
    room = math.floor((case.cores - 1) / max(cpu_share, 0.05)) if case.cores > 1 else workers
    best = min(wanted, max(room, workers))
    if best <= workers:
        return []
    cost = case.step_ms - max(case.rest_ms, loading.batch_ms / best)
    if not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"{workers} workers are busy {min(1.0, busy):.0%} of the time and the loop still"
                f" waits {case.waits_ms:.1f} ms a step; a batch takes one worker"
                f" {loading.batch_ms:.0f} ms."
            ),
            where=loading.loader.made_at,
            cost_ms=cost,
            fix=f"num_workers={best}, or slipstream.Loader, which finds the number by itself.",
            fix_class="N",
            gain=Gain(0.0, cost),
        )
    ]
