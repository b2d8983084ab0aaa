"""`row-by-row`: rows are taken out of a table of pandas one at a time."""

from slipstream.doctor.attribute import Loading
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
    if loading is None:
        return []
    lookups, lookup_ms = stage_count(loading, _STAGE), loading.stages.get(_STAGE, 0.0)
    if not lookups or lookups < 0.5 * loading.samples:
        return []
    spent = max(lookup_ms, _in_pandas(case, loading) * loading.batch_ms)
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
                "pandas looks up a row for every sample,"
                f" {1000 * lookup_ms / lookups:.0f} µs each time."
            ),
            where=lines[0][0] if lines else loading.loader.facts.get("read_at"),
            cost_ms=cost,
            fix="Take the columns out once, as arrays: values = frame['x'].to_numpy().",
            fix_class="E",
            gain=Gain(0.8 * cost, cost),
        )
    ]


def _in_pandas(case: Case, loading: Loading) -> float:
    """The share of a batch that is spent in pandas: with what it does to a row behind the lookup,
    and in batches that are not looked into.
    """
    processes = [line for process in loading.processes for line in process.lines]
    lines = processes if loading.loader.workers else case.capture.lines
    reading = [line for line in lines if line.stage in loading.stages]
    found = sum(
        line.count for line in reading if line.stage == _STAGE or line.leaf.startswith("pandas.")
    )
    return found / max(1, sum(line.count for line in reading))
