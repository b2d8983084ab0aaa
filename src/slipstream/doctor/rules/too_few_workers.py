"""`too-few-workers`: workers are busy all the time, cores are idle, and the loop waits."""

import math

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth

NAME = "too-few-workers"
HEALTHY = "workers keep up with the loop"
_BUSY = 0.75
_MOST_DELAY = 0.3  # of a batch: workers that wait for a core already gain nothing by company

_MOST_FOR_A_CORE = 4  # beyond that it is the storage that has to be faster


def find(case: Case) -> list[Finding]:
    """The loop waits for workers that never rest, and more of them would find cores to run on."""
    best, loading = wanted_workers(case), case.loading
    if best is None or loading is None:
        return []
    workers = loading.loader.workers
    busy = loading.batch_ms / workers / case.step_ms
    cost = case.gain_if(case.step_if(workers=best))
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
            gain=Gain(0.5 * cost, cost, "simulated"),
        )
    ]


def wanted_workers(case: Case) -> int | None:
    """How many there should be; None where that is not worth it."""
    loading = feed(case)
    if loading is None or not loading.loader.workers or not is_worth(case, case.waits_ms):
        return None
    workers = loading.loader.workers
    busy = loading.batch_ms / workers / case.step_ms
    if busy < _BUSY or loading.delay_ms > _MOST_DELAY * loading.batch_ms:
        return None
    best = _best_number(case, loading.batch_ms, loading.cpu_ms)
    if best <= workers or not is_worth(case, case.gain_if(case.step_if(workers=best))):
        return None
    return best


def _best_number(case: Case, batch_ms: float, cpu_ms: float) -> int:
    """Enough for the loop, and no more than find a core. Those that wait for storage need none."""
    loading = case.loading
    assert loading is not None
    workers = loading.loader.workers
    wanted = math.ceil(1.1 * batch_ms / max(case.rest_ms, 1e-3))
    # The loop needs a core for itself where it computes on one.
    cores = case.cores if case.on_device else case.cores - 1
    cpu_share = min(1.0, cpu_ms / batch_ms)
    room = math.floor(max(cores, 0.5) / max(cpu_share, 0.05))
    return min(wanted, max(min(room, _MOST_FOR_A_CORE * case.cores), workers))
