"""`small-shared-memory`: the batches that are made ahead hardly fit into shared memory."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed

NAME = "small-shared-memory"
HEALTHY = "shared memory holds the batches that are made ahead"
_FULL = 0.8


def find(case: Case) -> list[Finding]:
    """No time is lost by this: a worker dies of a bus error as soon as there is one batch more."""
    loading = feed(case)
    room = case.capture.machine.get("shared_memory_bytes")
    if loading is None or not loading.loader.workers or not room:
        return []
    loader = loading.loader
    ahead = loader.workers * (loader.prefetch or 2) + 1
    wanted = ahead * (loader.batch_bytes or 0)
    if wanted < _FULL * room:
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"{ahead} batches made ahead take {wanted / 2**20:.0f} MiB of shared memory, and"
                f" /dev/shm has {room / 2**20:.0f} MiB: a worker will die of a bus error."
            ),
            where=loader.made_at,
            cost_ms=0.0,
            fix=(
                "A larger /dev/shm (docker run --shm-size), a smaller prefetch_factor, or"
                ' torch.multiprocessing.set_sharing_strategy("file_system").'
            ),
            fix_class="E",
        )
    ]
