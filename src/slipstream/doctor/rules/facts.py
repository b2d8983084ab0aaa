"""What the rules about loading ask of the processes that read: sums over all of them."""

from collections import Counter
from typing import Any

from slipstream.doctor.attribute import Loading
from slipstream.doctor.capture import Line
from slipstream.doctor.rules.case import Case

_LEAST_MS = 0.3
_LEAST_SHARE = 0.05


def feed(case: Case) -> Loading | None:
    """How torch's loader makes the loop's batches; None for a loop without it, or with ours."""
    loading = case.loading
    if loading is None or loading.loader.kind == "slipstream" or loading.batch_ms <= 0:
        return None
    return loading


def is_worth(case: Case, cost_ms: float) -> bool:
    """Whether so much waiting is worth a finding: beyond what a queue's jitter makes of nothing."""
    return cost_ms >= max(_LEAST_MS, _LEAST_SHARE * case.step_ms)


def stages_ms(loading: Loading, *kinds: str) -> float:
    """Milliseconds of a batch in stages of these kinds: "read", "decode", "transform", …"""
    return sum(ms for stage, ms in loading.stages.items() if stage.partition(":")[0] in kinds)


def stage_blocked_ms(loading: Loading, stage: str) -> float:
    """Milliseconds of a batch in which this stage neither ran nor waited for a core."""
    cpu = loading.stages_cpu.get(stage, 0.0)
    delay = loading.delay_ms * cpu / loading.cpu_ms if loading.cpu_ms > 0 else 0.0
    return max(0.0, loading.stages.get(stage, 0.0) - cpu - delay)


def per_batch(loading: Loading, what: str) -> float:
    """Of a count that processes keep: how much of it a batch has."""
    batches = sum(process.batch_count for process in loading.processes)
    counts = sum(getattr(process, what) or 0 for process in loading.processes)
    return float(counts / max(1, batches))


def stage_count(loading: Loading, stage: str) -> float:
    """How often a stage runs for a batch."""
    batches = sum(process.batch_count for process in loading.processes)
    found = [
        process.stages[stage].count for process in loading.processes if stage in process.stages
    ]
    return sum(found) / max(1, batches)


def transform_facts(loading: Loading) -> dict[str, dict[str, Any]]:
    """What is known about each transform, by stage."""
    found: dict[str, dict[str, Any]] = {}
    for process in loading.processes:
        for stage, facts in process.facts.get("transforms", {}).items():
            known = found.setdefault(stage, dict(facts))
            known["random"] = bool(known.get("random")) or bool(facts.get("random"))
    return found


def sample_times(loading: Loading) -> Counter[int]:
    """{bits of the number of µs: how many samples took so long}."""
    counts: Counter[int] = Counter()
    for process in loading.processes:
        for bits, count in process.facts.get("sample_shape", {}).items():
            counts[int(bits)] += count
    return counts


def hot_lines(case: Case, stage: str) -> list[tuple[str, int]]:
    """Lines of the user's code that run in this stage, the most frequent first."""

    def wanted(line: Line) -> bool:
        return line.stage == stage and not line.leaf.startswith("slipstream.")

    return case.reader_lines(wanted)


def where_of(case: Case, stage: str) -> str | None:
    """The line of the user's code that a stage spends its time at, or where it is defined."""
    loading = case.loading
    assert loading is not None
    defined = transform_facts(loading).get(stage, {}).get("where")
    if stage == "dataset":
        defined = loading.loader.facts.get("read_at")
    elif stage == "collate":
        defined = loading.loader.facts.get("collate_at")
    lines = hot_lines(case, stage)
    file = (defined or "").rpartition(":")[0]
    for where, count in lines[:3]:
        # A line that holds most of the time says more than where the function begins.
        if where.rpartition(":")[0] == file and 2 * count >= sum(n for _, n in lines):
            return where
    return defined or (lines[0][0] if lines else None)
