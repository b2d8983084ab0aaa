"""`copy-on-write`: by looking at Python objects every worker makes its own copy of them."""

from slipstream.doctor.capture import Process
from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed

NAME = "copy-on-write"
HEALTHY = "workers share the memory of the dataset"
_LEAST_BYTES = 24 << 20
_LEAST_SHARE = 0.5  # of what became a worker's own, has to be lost to what they share


def find(case: Case) -> list[Finding]:
    """Memory that workers shared becomes their own, batch by batch. It costs memory, not time."""
    loading = feed(case)
    if loading is None or not loading.loader.workers:
        return []
    growths = [growth for p in loading.processes if (growth := _growth(p)) is not None]
    if not growths or loading.loader.start_method != "fork":
        return []
    grown = sum(growths) / len(growths)
    if grown < _LEAST_BYTES:
        return []
    mib = 2**20
    return [
        Finding(
            rule=NAME,
            title=(
                f"{grown / mib:.0f} MiB of the dataset became each worker's own while it was"
                f" watched, {grown * loading.loader.workers / mib:.0f} MiB in all: reading a Python"
                " object counts its references, and so writes to it."
            ),
            where=loading.loader.facts.get("read_at") or loading.loader.made_at,
            cost_ms=0.0,
            fix=(
                "Keep the samples in one NumPy array or tensor, not in lists and dicts; or in a"
                " packed file (slipstream pack)."
            ),
            fix_class="E",
        )
    ]


def _growth(process: Process) -> float | None:
    """Bytes that were shared after the first batch and are its own now."""
    if len(process.memory) < 3:
        return None
    _, own_before, shared_before = process.memory[0]
    _, own_after, shared_after = process.memory[-1]
    grown, lost = own_after - own_before, shared_before - shared_after
    return float(grown) if grown > 0 and lost >= _LEAST_SHARE * grown else None
