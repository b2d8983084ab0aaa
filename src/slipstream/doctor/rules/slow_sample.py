"""`slow-sample`: a few samples take far longer, and all batches behind theirs wait."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules import shallow_prefetch
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth, where_of
from slipstream.doctor.rules.jitter import slow_samples

NAME = "slow-sample"
HEALTHY = "no sample holds the others up"
_LEAST_SHARE = 0.25  # of the time of all samples


def find(case: Case) -> list[Finding]:
    """Rare samples that take eight times as long as usual, or more, and the loop waits."""
    loading = feed(case)
    if loading is None or not loading.loader.workers:
        return []
    slow = slow_samples(loading)
    if slow is None or slow.time_share < _LEAST_SHARE:
        return []
    if slow.time_share * loading.batch_ms < 2 * loading.delay_ms:
        return []  # they may have waited for a core, no more
    cost = case.gain_without(slow.time_share * loading.batch_ms)
    if not is_worth(case, cost) or shallow_prefetch.find(case):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"1 of {1 / slow.share:.0f} samples takes about {slow.slow_ms:.0f} ms where"
                f" {slow.typical_ms:.1f} ms are usual; batches come in order, so all behind it"
                " wait."
            ),
            where=where_of(case, "dataset"),
            cost_ms=cost,
            fix=(
                "Make these samples smaller once, in advance; or DataLoader(..., in_order=False),"
                " which hands out whatever is ready."
            ),
            fix_class="S",
            gain=Gain(case.gain_if(case.step_if(in_order=False)), cost, "simulated"),
        )
    ]
