"""`row-by-row`: rows are taken out of a table of pandas one at a time."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, hot_lines, is_worth, stage_count

NAME = "row-by-row"
HEALTHY = "tables are read by column"
_STAGE = "dataset: DataFrame.iloc"
_LEAST_SHARE = 0.2  # of a batch


def find(case: Case) -> list[Finding]:
    """`.iloc` and `.loc` for each sample."""
    loading = feed(case)
    if loading is None or stage_count(loading, _STAGE) < 0.5 * loading.samples:
        return []
    spent = loading.stages.get(_STAGE, 0.0)
    if not spent or spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    lines = hot_lines(case, _STAGE)
    each = 1000 * spent / stage_count(loading, _STAGE)
    return [
        Finding(
            rule=NAME,
            title=f"pandas looks up a row for every sample, {each:.0f} µs each time.",
            where=lines[0][0] if lines else loading.loader.facts.get("read_at"),
            cost_ms=cost,
            fix="Take the columns out once, as arrays: values = frame['x'].to_numpy().",
            fix_class="E",
            gain=Gain(0.8 * cost, cost),
        )
    ]
