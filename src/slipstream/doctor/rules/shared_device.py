"""`shared-device`: other processes use the same GPU."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import replays

NAME = "shared-device"
HEALTHY = "no other process was seen on the device"


def find(case: Case) -> list[Finding]:
    """Counted by the driver, at the end of the window. What they take is not known."""
    for seen in replays(case, "device"):
        others = seen["processes"] - 1
        if not case.on_device or others < 1:
            continue
        return [
            Finding(
                rule=NAME,
                title=(
                    f"{others} other process{'es compute' if others > 1 else ' computes'} on the"
                    " same device: what is measured here is theirs, too."
                ),
                where=None,
                cost_ms=0.0,
                fix="CUDA_VISIBLE_DEVICES with a device of its own, or wait for theirs.",
                fix_class="E",
                gain=Gain(0.0, case.step_ms),
            )
        ]
    return []
