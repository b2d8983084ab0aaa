"""`shallow-prefetch`: workers are fast enough, but not far enough ahead when one batch is slow."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth
from slipstream.doctor.rules.jitter import is_fast_enough, is_uneven, slow_samples

NAME = "shallow-prefetch"
HEALTHY = "workers are far enough ahead"
_DEEP = 8
_MOST_DELAY = 0.3  # of a batch
_LEAST_SHARE = 0.5  # of the waiting time that has to go away


def find(case: Case) -> list[Finding]:
    """Uneven batches, workers that rest in between, and a short queue."""
    loading = feed(case)
    if loading is None or not loading.loader.workers or not is_fast_enough(case):
        return []
    prefetch = loading.loader.prefetch or 2
    if prefetch >= _DEEP or not is_uneven(case):
        return []
    if loading.delay_ms > _MOST_DELAY * loading.batch_ms:
        return []  # uneven because cores are short
    if prefetch > 1 and slow_samples(loading) is not None:
        return []  # the queue is as deep as usual: it is the samples
    cost = case.gain_if(case.step_if(prefetch=_DEEP))
    if not is_worth(case, cost) or cost < _LEAST_SHARE * case.waits_ms:
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"Workers could keep up, but some batches take {max(case.batches_ms):.0f} ms and"
                f" only {loading.loader.workers} x {prefetch} batches are made ahead."
            ),
            where=loading.loader.made_at,
            cost_ms=cost,
            fix=f"DataLoader(..., prefetch_factor={_DEEP}), as memory allows.",
            fix_class="E",
            gain=Gain(0.5 * cost, cost, "simulated"),
        )
    ]
