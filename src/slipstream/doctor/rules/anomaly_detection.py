"""`anomaly-detection`: autograd checks every operation, a tool for finding bugs left on."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import compared

NAME = "anomaly-detection"
HEALTHY = "no debugging aid is left on"


def find(case: Case) -> list[Finding]:
    """Anomaly detection, measured; CUDA_LAUNCH_BLOCKING, by what the device waits."""
    found = []
    gain = compared(case, "anomaly", learning_ms(case))
    calls = case.calls("anomaly")
    if gain is not None and gain.is_sure and case.matters(gain.cost_ms):
        found.append(
            Finding(
                rule=NAME,
                title=f"Anomaly detection is on and takes {gain.cost_ms:.1f} ms of a step.",
                where=calls[0].where if calls else None,
                cost_ms=gain.cost_ms,
                fix="Turn it on only to find a bug: torch.autograd.set_detect_anomaly(False).",
                fix_class="E",
                gain=gain.gain,
            )
        )
    flags = case.capture.settings.get("flags", {})
    if case.on_device and flags.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        # Every launch waits for the one before: what is hidden behind the device otherwise.
        cost = case.attribution.of("unattributed") + case.attribution.of("optimizer")
        found.append(
            Finding(
                rule=NAME,
                title="CUDA_LAUNCH_BLOCKING is set: the processor waits for every kernel.",
                where=None,
                cost_ms=cost,
                fix="Unset CUDA_LAUNCH_BLOCKING.",
                fix_class="E",
                gain=Gain(0.0, case.step_ms),
            )
        )
    return found
