"""`no-workers`: the loop reads its own samples, and the model waits meanwhile."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth, where_of
from slipstream.doctor.rules.per_sample_indexing import is_in_memory

NAME = "no-workers"
HEALTHY = "samples are read while the model works"
# What it takes the loop to get a batch from a worker: a pipe, a mapped file, pages touched.
_HAND_OVER_MS = 0.5
_HAND_OVER_BYTES_PER_MS = 2e6


def find(case: Case) -> list[Finding]:
    """A loader with num_workers=0 whose batches take a part of every step."""
    loading = feed(case)
    if loading is None or loading.loader.workers or is_in_memory(loading):
        return []
    cost = case.waits_ms
    hand_over = _HAND_OVER_MS + (loading.loader.batch_bytes or 0) / _HAND_OVER_BYTES_PER_MS
    if not is_worth(case, cost) or cost < 3 * hand_over:
        return []
    # With enough workers only the hand-over is left; with one, the slower of the two.
    best = cost - hand_over
    least = case.step_ms - max(case.rest_ms + hand_over, loading.batch_ms)
    stage = max(loading.stages, key=lambda name: loading.stages[name])
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
            gain=Gain(max(0.0, min(least, best)), best),
            places=() if line is None else (line,),
        )
    ]
