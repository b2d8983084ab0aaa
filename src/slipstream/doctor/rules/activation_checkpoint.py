"""`activation-checkpoint`: activations are computed twice though there is memory for them."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "activation-checkpoint"
HEALTHY = "nothing is computed twice without need"
_FULL = 0.5  # of the memory


def find(case: Case) -> list[Finding]:
    """By what the second computation took."""
    calls = case.calls("checkpoint")
    passes = sum(call.count for call in case.calls("backward"))
    if not calls or not passes or not _has_room(case):
        return []
    cost = sum(call.wall for call in calls) * 1e-6 / passes
    if not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"Activations are thrown away and computed again ({cost:.1f} ms of a step), with"
                " more than half of the memory free."
            ),
            where=max(calls, key=lambda call: call.wall).where,
            cost_ms=cost,
            fix="Use torch.utils.checkpoint for fewer layers, or not at all.",
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]


def _has_room(case: Case) -> bool:
    column = 2 if case.on_device else 1
    room = case.capture.machine.get("device_memory_bytes" if case.on_device else "memory_bytes")
    used = [entry[column] for entry in case.capture.memory]
    return bool(room and used) and max(used) < _FULL * float(room or 0)
