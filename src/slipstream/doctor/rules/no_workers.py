"""`no-workers`: the loop reads its own samples, and the model waits meanwhile."""

from dataclasses import replace

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.measured import pipeline_of
from slipstream.doctor.rules import per_sample_indexing
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth, where_of
from slipstream.doctor.rules.per_sample_indexing import is_in_memory
from slipstream.doctor.simulate import simulate

NAME = "no-workers"
HEALTHY = "samples are read while the model works"
# What it takes the loop to get a batch from a worker: a pipe, a mapped file, pages touched.
_HAND_OVER_MS = 0.5
_HAND_OVER_BYTES_PER_MS = 2e6
_LEAST_MS, _LEAST_SHARE = 3.0, 0.40  # of samples that lie in memory
# Of a step, where the model takes the cores that would make batches ahead.
LEAST_SHARE_AHEAD = 0.2
_FULL = 0.9  # of the cores
# Of what is simulated: threads that wait for each other lose more than their turn.
_CROWDED = (0.7, 1.2)


def find(case: Case) -> list[Finding]:
    """A loader with num_workers=0 whose batches take a part of every step."""
    loading = feed(case)
    if loading is None or loading.loader.workers:
        return []
    cost = case.waits_ms
    if is_in_memory(loading) and (
        per_sample_indexing.find(case) or cost < max(_LEAST_MS, _LEAST_SHARE * case.step_ms)
    ):
        return []  # workers would hardly be quicker
    hand_over = _HAND_OVER_MS + (loading.loader.batch_bytes or 0) / _HAND_OVER_BYTES_PER_MS
    if not is_worth(case, cost) or cost < 3 * hand_over:
        return []
    stage = max(loading.stages, key=lambda name: loading.stages[name], default="")
    line = where_of(case, stage)
    return [
        Finding(
            rule=NAME,
            title=(
                f"The training loop reads its own samples: {cost:.1f} ms of every step the model"
                f" waits for a batch of {loading.loader.dataset}."
            ),
            where=loading.loader.made_at,
            cost_ms=cost,
            fix="Read ahead in workers: DataLoader(..., num_workers=N), or slipstream.Loader.",
            fix_class="N",
            gain=_gain(case, hand_over),
            has_cure=case.on_device or cost >= LEAST_SHARE_AHEAD * case.step_ms,
            places=() if line is None else (line,),
        )
    ]


def _gain(case: Case, hand_over_ms: float) -> Gain:
    """With enough workers and cores only the hand-over is left; where the loop needs the cores,
    too, that is not to be had.
    """
    best = max(0.0, case.waits_ms - hand_over_ms)
    now = pipeline_of(case.capture, case.attribution)
    if now is None:
        return Gain(0.0, best, "simulated")
    workers = max(1, min(case.cores, 8))
    then = simulate(replace(now, workers=workers, hand_over_ms=hand_over_ms))
    saved = min(best, max(0.0, case.step_ms - then.step_ms))
    if then.cores_busy < _FULL:
        return Gain(saved, best, "simulated")
    return Gain(_CROWDED[0] * saved, min(best, _CROWDED[1] * saved), "simulated")
