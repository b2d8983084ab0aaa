"""`swapping`: memory is full, and pages come back from the disk while the loop waits."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import replays

NAME = "swapping"
HEALTHY = "nothing comes back from swap"
_OFTEN = 10  # pages of a step


def find(case: Case) -> list[Finding]:
    """Pages read from swap meanwhile, by what waited for them: as far as Linux counts it as a lack
    of memory, or as loading was blocked by it.
    """
    for seen in replays(case, "swap"):
        steps = max(1, len(case.attribution.steps))
        if seen["pages"] < _OFTEN * steps or not seen["own_bytes"]:
            continue
        stalled = seen["stalled"]
        waited = _loading_ms(case, seen["pages"] * seen.get("page_bytes", 4096) / steps)
        cost = min(max(waited, (stalled or 0) * 1e-6 / steps), case.step_ms)
        if stalled is not None and not case.matters(cost):
            continue
        return [
            Finding(
                rule=NAME,
                title=(
                    f"{seen['pages'] / steps:.0f} pages a step came back from swap, and"
                    f" {seen['own_bytes'] / 2**20:.0f} MiB of this process still lie there."
                ),
                where=None,
                cost_ms=cost,
                fix="Fewer workers, a smaller prefetch_factor, or data in a packed file.",
                fix_class="E",
                gain=Gain(0.0, cost or case.step_ms),
            )
        ]
    return []


def _loading_ms(case: Case, came_back: float) -> float:
    """Of a step: the loop waits for batches whose processes wait for their own memory. Storage was
    read then without a call that reads.
    """
    loading = case.loading
    if loading is None or not loading.read_bytes:
        return 0.0
    silent = loading.read_bytes - (loading.read_chars or 0.0)
    share = min(1.0, max(0.0, silent) / loading.read_bytes)
    share *= min(1.0, came_back / loading.read_bytes)
    # A process that waits for a page has lost its core, too.
    return share * case.gain_without(loading.blocked_ms + loading.delay_ms)
