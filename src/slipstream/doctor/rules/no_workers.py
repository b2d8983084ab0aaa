"""`no-workers`: the loop reads its own samples, and the model waits meanwhile."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "no-workers"
HEALTHY = "samples are read while the model works"


def find(case: Case) -> list[Finding]:
    """A loader with num_workers=0 whose batches take a part of every step."""
    loading = case.loading
    if loading is None or loading.loader.workers or loading.loader.kind == "slipstream":
        return []
    cost = case.waits_ms
    if not case.matters(cost):
        return []
    # With enough workers only the hand-over is left; with one, the slower of the two.
    best = cost
    least = case.step_ms - max(case.rest_ms, loading.batch_ms)
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
        )
    ]
