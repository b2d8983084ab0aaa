"""`needless-copy`: data is copied to a tensor, number by number or for nothing."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth, stage_count, where_of

NAME = "needless-copy"
HEALTHY = "arrays become tensors without a copy"
STAGE = "convert: torch.tensor"
_LEAST_SHARE = 0.2  # of a batch
_LEAST_MS = 0.05  # less is a handful of numbers


def find(case: Case) -> list[Finding]:
    """`torch.tensor` of arrays or lists takes a good part of a batch."""
    loading = feed(case)
    if loading is None or not loading.stages.get(STAGE):
        return []
    spent = loading.stages[STAGE]
    each = loading.stages_cpu[STAGE] / max(1e-9, stage_count(loading, STAGE))
    if spent < _LEAST_SHARE * loading.batch_ms or each < _LEAST_MS:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    # Of C: what runs there is our own watching function.
    lines = case.reader_lines(lambda line: line.stage == STAGE)
    return [
        Finding(
            rule=NAME,
            title=(
                f"torch.tensor copies {stage_count(loading, STAGE):.0f} times for a batch, which"
                f" takes {spent:.1f} of its {loading.batch_ms:.1f} ms."
            ),
            where=lines[0][0] if lines else where_of(case, "dataset"),
            cost_ms=cost,
            fix="torch.from_numpy(array) shares the array's memory; lists become arrays once.",
            fix_class="E",
            gain=Gain(0.8 * cost, cost),
        )
    ]
