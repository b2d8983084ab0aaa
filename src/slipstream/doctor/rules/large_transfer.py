"""`large-transfer`: it takes the loop long to get a batch out of a worker."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed
from slipstream.doctor.rules.jitter import is_fast_enough

NAME = "large-transfer"
HEALTHY = "batches come from workers without a copy"
_MANY = 20
_LEAST_BYTES = 1 << 20
_LEAST_MS = 2.0  # a pipe and a mapped file take a good part of that
_LEAST_SHARE = 0.10


def find(case: Case) -> list[Finding]:
    """The loop's own work to take a batch: arrays that are pickled, or many small tensors."""
    loading = feed(case)
    if loading is None or not loading.loader.workers:
        return []
    cost = min(loading.hand_over_ms, case.waits_ms)
    arrays = loading.loader.facts.get("array_bytes", 0)
    tensors = len(loading.loader.tensors)
    floats = sum(entry[3] for entry in loading.loader.tensors if entry[1].startswith("float"))
    if cost < max(_LEAST_MS, _LEAST_SHARE * case.step_ms):
        return []
    if arrays >= _LEAST_BYTES:
        if is_fast_enough(case):
            cost = case.waits_ms  # batches are made in time: what is left is their way
        what = f"{arrays / 2**20:.0f} MiB of NumPy arrays are pickled and copied twice"
        fix = "Let collate_fn return torch tensors: these stay where they are, in shared memory."
    elif tensors >= _MANY:
        what = f"a batch is {tensors} tensors or more, each a file to open and to map"
        fix = "Fewer, larger tensors: let collate_fn put them together."
    elif floats >= _LEAST_BYTES:
        what = f"a batch has {floats / 2**20:.0f} MiB of floats"
        fix = "Send fewer bytes: uint8, cast and normalized behind the loader."
    else:
        return []
    return [
        Finding(
            rule=NAME,
            title=f"It takes the loop {cost:.1f} ms a step to get a batch out of a worker: {what}.",
            where=loading.loader.facts.get("collate_at") or loading.loader.made_at,
            cost_ms=cost,
            fix=fix,
            fix_class="E",
            gain=Gain(0.5 * cost, cost),
        )
    ]
