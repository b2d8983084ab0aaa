"""`needless-copy`: data is copied to a tensor, number by number or for nothing."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, hot_lines, is_worth, stage_count

NAME = "needless-copy"
HEALTHY = "arrays become tensors without a copy"
_STAGE = "convert: torch.tensor"
_LEAST_SHARE = 0.2  # of a batch


def find(case: Case) -> list[Finding]:
    """`torch.tensor` of arrays or lists takes a good part of a batch."""
    loading = feed(case)
    if loading is None or not loading.stages.get(_STAGE):
        return []
    spent = loading.stages[_STAGE]
    if spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    lines = hot_lines(case, _STAGE)
    return [
        Finding(
            rule=NAME,
            title=(
                f"torch.tensor copies {stage_count(loading, _STAGE):.0f} times for a batch, which"
                f" takes {spent:.1f} of its {loading.batch_ms:.1f} ms."
            ),
            where=lines[0][0] if lines else loading.loader.facts.get("read_at"),
            cost_ms=cost,
            fix="torch.from_numpy(array) shares the array's memory; lists become arrays once.",
            fix_class="E",
            gain=Gain(0.8 * cost, cost),
        )
    ]
