"""`storage-wait`: samples are waited for, and nothing is computed meanwhile."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth, stage_blocked_ms, where_of

NAME = "storage-wait"
HEALTHY = "reading samples is computing, not waiting"
_LEAST_SHARE = 0.4  # of a batch


def find(case: Case) -> list[Finding]:
    """Most of a batch's time a worker is blocked: by storage, a network, a lock, a sleep."""
    loading = feed(case)
    if loading is None or loading.blocked_ms < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(loading.blocked_ms)
    if not is_worth(case, cost):
        return []
    stage = max(loading.stages, key=lambda name: stage_blocked_ms(loading, name))
    return [
        Finding(
            rule=NAME,
            title=(
                f"{loading.blocked_ms:.1f} of the {loading.batch_ms:.1f} ms of a batch are spent"
                f" waiting, not computing, most of it in {stage}."
            ),
            where=where_of(case, stage) or loading.loader.made_at,
            cost_ms=cost,
            fix=(
                "Bring the data nearer: pack it into one file on a fast disk, or keep it in memory;"
                " more workers hide what is left."
            ),
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]
