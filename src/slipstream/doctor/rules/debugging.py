"""Aids for finding bugs, left on."""

from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import replays


def is_debugged(case: Case) -> bool:
    """Whether something makes every operation slow: checks of autograd, a profiler, or waits."""
    return any(replays(case, name) for name in ("anomaly", "profiler")) or waits_for_launches(case)


def waits_for_launches(case: Case) -> bool:
    """Whether the processor waits for every kernel."""
    flags = case.capture.settings.get("flags", {})
    return case.on_device and flags.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
