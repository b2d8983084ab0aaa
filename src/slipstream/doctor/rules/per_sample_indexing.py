"""`per-sample-indexing`: data that lies in memory is picked up sample by sample."""

from slipstream.doctor.attribute import Loading
from slipstream.doctor.capture import Process
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, per_batch, stage_count

NAME = "per-sample-indexing"
HEALTHY = "data in memory is gathered batch by batch"
_MOST_SAMPLE_MS = 0.03  # beyond this a sample is more than an index
_LEAST_MS = 1.0
_LEAST_SHARE = 0.20
_LEAST_SAMPLES = 128  # in a batch: below, there is little to gain
_GATHER_BYTES_PER_MS = 4e6
_GATHER_MS = 0.05
_LARGE_BYTES = 32 << 10  # of a sample


def is_in_memory(loading: Loading) -> bool:
    """Whether a sample is little more than an index into data that is there."""
    if loading.loader.kind != "map" or loading.samples < 1:
        return False
    inside = {"fetch", "dataset", "collate", "convert: torch.tensor"}
    others = sum(ms for stage, ms in loading.stages_cpu.items() if stage not in inside)
    if others > 0.02 * loading.cpu_ms or loading.blocked_ms > 0.5 * loading.batch_ms:
        return False
    if per_batch(loading, "opens") > 0.1 * loading.samples or not stage_count(loading, "dataset"):
        return False
    read = loading.read_chars or 0.0
    if read > max(_LARGE_BYTES, 0.3 * (loading.loader.batch_bytes or 0)):
        return False
    own = loading.stages_cpu["dataset"] + loading.stages_cpu.get("convert: torch.tensor", 0.0)
    return own / loading.samples <= _MOST_SAMPLE_MS


def _watched_ms(loading: Loading) -> float:
    """What timing the samples takes of a batch, where it could not be seen and left out."""
    known = [p.facts.get("call_ns", 0) for p in loading.processes if not _is_left_out(p)]
    return float(sum(known) * 1e-6 * loading.samples / max(1, len(loading.processes)))


def _is_left_out(process: Process) -> bool:
    return bool(process.facts.get("watching", (0,))[0])


def find(case: Case) -> list[Finding]:
    """Python's work on each sample, where one gather could fetch the batch."""
    loading = feed(case)
    if loading is None or not is_in_memory(loading) or loading.loader.collate != "default_collate":
        return []
    if (loading.loader.batch_bytes or 0) > _LARGE_BYTES * loading.samples:
        return []  # copying is what takes time
    if loading.samples < _LEAST_SAMPLES:
        return []
    if stage_count(loading, "dataset") < 0.5 * loading.samples:
        return []  # __getitems__ is there already
    gather = _GATHER_MS + (loading.loader.batch_bytes or 0) / _GATHER_BYTES_PER_MS
    cost = case.gain_without(loading.batch_ms - gather - _watched_ms(loading))
    if cost < max(_LEAST_MS, _LEAST_SHARE * case.step_ms):
        return []
    each_us = 1000 * (loading.batch_ms - _watched_ms(loading)) / loading.samples
    return [
        Finding(
            rule=NAME,
            title=(
                f"{loading.samples:.0f} samples are picked up one by one, {each_us:.0f} µs of"
                " Python each, from data that lies in memory."
            ),
            where=loading.loader.facts.get("read_at") or loading.loader.made_at,
            cost_ms=cost,
            fix=(
                "Gather a batch at once: give the dataset __getitems__(indices), or index the"
                " tensors with a whole batch of indices."
            ),
            fix_class="E",
            gain=Gain(0.5 * cost, cost),
        )
    ]
