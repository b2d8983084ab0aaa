"""`large-transfer`: it takes the loop long to get a batch out of a worker."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth

NAME = "large-transfer"
HEALTHY = "batches come from workers without a copy"
_MANY = 20
_LEAST_BYTES = 1 << 20


def find(case: Case) -> list[Finding]:
    """The loop's own work to take a batch: arrays that are pickled, or many small tensors."""
    loading = feed(case)
    if loading is None or not loading.loader.workers:
        return []
    cost = min(loading.hand_over_ms, case.waits_ms)
    arrays = loading.loader.facts.get("array_bytes", 0)
    tensors = len(loading.loader.tensors)
    if not is_worth(case, cost):
        return []
    if arrays >= _LEAST_BYTES:
        what = f"{arrays / 2**20:.0f} MiB of NumPy arrays are pickled and copied twice"
        fix = "Let collate_fn return torch tensors: these stay where they are, in shared memory."
    elif tensors >= _MANY:
        what = f"a batch is {tensors} tensors or more, each a file to open and to map"
        fix = "Fewer, larger tensors: let collate_fn put them together."
    elif (loading.loader.batch_bytes or 0) >= _LEAST_BYTES:
        what = f"a batch has {(loading.loader.batch_bytes or 0) / 2**20:.0f} MiB"
        fix = "Send fewer bytes: uint8, cast and normalized behind the loader."
    else:
        return []
    return [
        Finding(
            rule=NAME,
            title=f"The loop works {cost:.1f} ms a step to take a batch from a worker: {what}.",
            where=loading.loader.facts.get("collate_at") or loading.loader.made_at,
            cost_ms=cost,
            fix=fix,
            fix_class="E",
            gain=Gain(0.5 * cost, cost),
        )
    ]
