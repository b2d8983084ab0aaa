"""`too-many-workers`: more workers than cores; they and the loop wait for their turn."""

from slipstream.doctor.capture import NEXT
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth

NAME = "too-many-workers"
HEALTHY = "workers find cores to run on"
_LEAST_DELAY = 0.4  # of a batch


def find(case: Case) -> list[Finding]:
    """Workers spend their time waiting for a core, and so does the loop."""
    loading = feed(case)
    if loading is None or loading.loader.workers <= max(2, case.cores):
        return []
    if loading.delay_ms < _LEAST_DELAY * loading.batch_ms:
        return []
    waited = loop_delay_ms(case)
    if waited is None:
        return []
    best = max(1, case.cores if case.on_device else case.cores - 1)
    # Fewer workers leave the loop its core, but have to make as many batches.
    then = max(case.rest_ms - waited + loading.hand_over_ms, loading.cpu_ms / best)
    cost = min(waited, case.step_ms - then)
    if not is_worth(case, cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"{loading.loader.workers} workers share {case.cores} cores: they wait"
                f" {loading.delay_ms / loading.batch_ms:.0%} of the time for one, and the loop"
                f" itself {waited:.1f} ms a step."
            ),
            where=loading.loader.made_at,
            cost_ms=cost,
            fix=f"num_workers={best}, or slipstream.Loader, which finds the number by itself.",
            fix_class="N",
            gain=Gain(0.0, cost),
        )
    ]


def loop_delay_ms(case: Case) -> float | None:
    """Milliseconds of a step in which the loop was ready to go on and had no core."""
    loading = case.loading
    assert loading is not None
    found = []
    before: int | None = None
    for span in sorted(case.capture.spans, key=lambda span: span.start):
        if span.kind != NEXT or span.detail[0] != loading.loader.id or len(span.detail) < 5:
            continue
        asked, got = span.detail[3:5]
        if before is not None and asked is not None and span.detail[2] > 0:
            found.append(asked - before)
        before = got
    return sum(found) * 1e-6 / len(found) if found else None
