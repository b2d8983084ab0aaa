"""`slow-sampler`: choosing the samples of a batch takes the loop's own time."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth

NAME = "slow-sampler"
HEALTHY = "choosing samples takes no time"
_FIRST = 10  # times as long as usual: then it is done once for an epoch


def find(case: Case) -> list[Finding]:
    """The sampler's time in each step, with what it does once for an epoch shared among them."""
    loading = feed(case)
    if loading is None:
        return []
    loader = loading.loader
    calls, total, longest = loader.facts.get("index", (0, 0, []))
    if not calls:
        return []
    often = total / calls
    first = [took for took in longest if took > _FIRST * often and took > 1_000_000]
    each = (total - sum(first)) / max(1, calls - len(first))
    epoch = loader.length or calls
    cost = (each + (sum(first) / len(first) if first else 0.0) / max(1, epoch)) * 1e-6
    if not is_worth(case, cost):
        return []
    once = f", {sum(first) / len(first) * 1e-6:.0f} ms at the start of an epoch" if first else ""
    return [
        Finding(
            rule=NAME,
            title=(
                f"{loader.facts.get('sampler', 'The sampler')} takes {cost:.1f} ms of the loop's"
                f" time for a batch{once}."
            ),
            where=loader.facts.get("sampler_at") or loader.made_at,
            cost_ms=cost,
            fix="Choose samples with array operations, all of an epoch at once, in NumPy or torch.",
            fix_class="N",
            gain=Gain(0.7 * cost, cost),
        )
    ]
