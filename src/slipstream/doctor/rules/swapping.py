"""`swapping`: memory is full, and pages come back from the disk while the loop waits."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import replays

NAME = "swapping"
HEALTHY = "nothing comes back from swap"
_OFTEN = 10  # pages of a step


def find(case: Case) -> list[Finding]:
    """Pages read from swap meanwhile; bounded by what waited for memory, where Linux counts it."""
    for seen in replays(case, "swap"):
        steps = max(1, len(case.attribution.steps))
        if seen["pages"] < _OFTEN * steps or not seen["own_bytes"]:
            continue
        stalled = seen["stalled"]
        cost = 0.0 if stalled is None else min(stalled * 1e-6 / steps, case.step_ms)
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
                gain=Gain(0.0, cost if stalled is not None else case.step_ms),
            )
        ]
    return []
