"""`thread-count`: torch computes with fewer threads than there are free cores, or with more."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "thread-count"
HEALTHY = "torch uses as many threads as there are cores for it"
_SHARE = 0.25


def find(case: Case) -> list[Finding]:
    """Measured with another number, when the loader's workers were at rest."""
    if case.on_device:
        return []
    gain = compared(case, "threads", learning_ms(case))
    if gain is None or gain.low_ms < _SHARE / 2 * case.step_ms:
        return []
    now, best = gain.replay["threads"]
    if gain.cost_ms < _SHARE * case.step_ms or (now < best and _free_cores(case) < best - 0.5):
        return []
    calls = case.calls("torch.set_num_threads")
    return [
        Finding(
            rule=NAME,
            title=(
                f"torch computes with {now} thread{'s' if now > 1 else ''} on {best} cores:"
                f" {gain.cost_ms:.1f} ms of a step."
            ),
            where=calls[0].where if calls else None,
            cost_ms=gain.cost_ms,
            fix=f"torch.set_num_threads({best}), or OMP_NUM_THREADS={best}.",
            fix_class="N",
            gain=gain.gain,
        )
    ]


def _free_cores(case: Case) -> float:
    """That the loader's workers leave."""
    loading = case.loading
    if loading is None or not loading.loader.workers:
        return float(case.cores)
    return case.cores - min(loading.loader.workers, loading.cpu_ms / max(case.step_ms, 1e-3))
