"""`cudnn-benchmark-off`: cuDNN guesses an algorithm where it could measure."""

from typing import Any

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of, has_steady_shapes, learning_ms
from slipstream.doctor.rules.replayed import compare, replays

NAME = "cudnn-benchmark-off"
HEALTHY = "convolutions run with the fastest algorithm"

_SHARE = 0.05


def find(case: Case) -> list[Finding]:
    """Measured with the search on; only where shapes stay the same it would stay a gain."""
    if not case.on_device:
        return []
    found = [compare(_by_row(r), learning_ms(case)) for r in replays(case, "cudnn-benchmark")]
    gain = max(found, key=lambda comparison: comparison.cost_ms, default=None)
    if gain is None or not gain.is_sure:
        return []
    cost = gain.cost_ms
    if cost < _SHARE * case.step_ms or not case.matters(cost):
        return []
    facts = facts_of(case, gain.replay["model"])
    if not has_steady_shapes(facts):
        return []  # every new shape is searched for
    return [
        Finding(
            rule=NAME,
            title=f"cuDNN guesses its algorithms: {cost:.1f} ms of a step.",
            where=next((mode["where"] for mode in facts.get("modes", {}).values()), None),
            cost_ms=cost,
            fix="torch.backends.cudnn.benchmark = True, while shapes stay the same.",
            fix_class="N",
            gain=gain.gain,
        )
    ]


def _by_row(replay: dict[str, Any]) -> dict[str, Any]:
    """As if both had the same batch: the search was done for a smaller one."""
    rows, fewer = replay["rows"]
    return {**replay, "then_ms": [ms * rows / fewer for ms in replay["then_ms"]]}
