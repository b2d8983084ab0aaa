"""`slow-collate`: putting samples together to a batch takes long."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth, where_of

NAME = "slow-collate"
HEALTHY = "samples are put together quickly"
_LEAST_SHARE = 0.25  # of a batch
_STACK_BYTES_PER_MS = 2e6


def find(case: Case) -> list[Finding]:
    """A collate_fn of the user's that takes a good part of a batch, beyond copying its bytes."""
    loading = feed(case)
    if loading is None or loading.loader.facts.get("collate_at") is None:
        return []
    taken = loading.stages.get("collate", 0.0)
    spent = taken - (loading.loader.batch_bytes or 0) / _STACK_BYTES_PER_MS
    if spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"{loading.loader.collate} takes {taken:.1f} of the {loading.batch_ms:.1f} ms of a"
                " batch."
            ),
            where=where_of(case, "collate"),
            cost_ms=cost,
            fix=(
                "Write samples into one tensor that is made first, without loops over elements;"
                " torch.stack and pad_sequence do that."
            ),
            fix_class="E",
            gain=Gain(0.5 * cost, cost),
        )
    ]
