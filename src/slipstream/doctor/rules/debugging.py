"""Aids for finding bugs, left on."""

from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import replays


def detects_anomalies(case: Case) -> bool:
    """Whether autograd was checking every operation."""
    return bool(replays(case, "anomaly"))


def waits_for_launches(case: Case) -> bool:
    """Whether the processor waits for every kernel."""
    flags = case.capture.settings.get("flags", {})
    return case.on_device and flags.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
