"""`allocator-thrash`: device memory is fetched from the driver again and again."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "allocator-thrash"
HEALTHY = "device memory is used again"
_OFTEN = 0.5  # allocations by the driver, of a step


def find(case: Case) -> list[Finding]:
    """Counted, after the first steps. Its time is part of whatever asked for memory."""
    counts = case.capture.settings.get("allocator") or {}
    retries, fetched = counts.get("num_alloc_retries", 0), counts.get("num_device_alloc", 0)
    steps = len(case.attribution.steps)
    if not case.on_device or (not retries and fetched < _OFTEN * steps):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"In {steps} steps the allocator asked the driver {fetched} times for memory, and"
                f" gave all of its cache back {retries} times."
            ),
            where=None,
            cost_ms=0.0,
            fix="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and shapes that stay the same.",
            fix_class="E",
            gain=Gain(0.0, case.step_ms),
        )
    ]
