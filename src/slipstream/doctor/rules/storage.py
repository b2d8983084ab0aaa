"""Time that samples wait for storage, for the rules that ask why."""

from slipstream.doctor.attribute import Loading
from slipstream.doctor.rules.facts import stage_blocked_ms

# These read lazily, where they decode.
_LAZY = ("decode: Pillow", "dataset", "fetch")


def reading_ms(loading: Loading) -> float:
    """Milliseconds of a batch in calls that read, and blocked elsewhere where files are read."""
    reads = sum(ms for stage, ms in loading.stages.items() if stage.startswith("read:"))
    return reads + sum(stage_blocked_ms(loading, stage) for stage in _LAZY)


def samples_of(loading: Loading) -> float:
    """Different samples that were read: no more than there are."""
    read = sum(process.samples for process in loading.processes)
    known = loading.loader.facts.get("samples")
    return float(min(read, known) if known else read)


def files_of(loading: Loading) -> float:
    """Different files that were opened."""
    return float(sum(process.opens - process.opened_again for process in loading.processes))
