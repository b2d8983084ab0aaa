"""`cold-reads`: samples come from the disk, not from memory."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth, stage_count
from slipstream.doctor.rules.storage import reading_ms

NAME = "cold-reads"
HEALTHY = "samples come from the page cache"
_LEAST_BYTES = 64 << 10  # of a batch
_LEAST_SHARE = 0.3  # of the bytes
_LEAST_TIME = 0.2  # of a batch


def find(case: Case) -> list[Finding]:
    """Much of what is read comes from storage, and the loop waits for it."""
    loading = feed(case)
    if loading is None or loading.read_bytes is None or loading.read_chars is None:
        return []
    if loading.read_bytes < max(_LEAST_BYTES, _LEAST_SHARE * loading.read_chars):
        return []
    warm = sum(stage_count(loading, stage) for stage in loading.stages if stage.startswith("read:"))
    warm *= float(case.capture.settings.get("warm_read_us") or 0.0) * 1e-3
    blocked = max(0.0, min(reading_ms(loading), loading.blocked_ms) - warm)
    # Who was blocked has to wait for a core again.
    spent = blocked + loading.delay_ms
    if blocked < _LEAST_TIME * (loading.batch_ms - loading.delay_ms):
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    rate = loading.read_bytes / max(blocked, 1e-3) / 1000
    return [
        Finding(
            rule=NAME,
            title=(
                f"{loading.read_bytes / 1024:.0f} KiB of a batch come from the disk, at"
                f" {rate:.0f} MB/s while it is waited for."
            ),
            where=loading.loader.facts.get("read_at") or loading.loader.made_at,
            cost_ms=cost,
            fix=(
                "Pack the samples into one file that is smaller than memory, or cache them:"
                ' slipstream.Loader(..., cache="ram").'
            ),
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]
