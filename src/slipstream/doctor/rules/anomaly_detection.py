"""`anomaly-detection`: autograd checks every operation, a tool for finding bugs left on."""

import operator
import statistics

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.debugging import waits_for_launches
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import Comparison, compare, replays

NAME = "anomaly-detection"
HEALTHY = "no debugging aid is left on"


def find(case: Case) -> list[Finding]:
    """Anomaly detection, measured; CUDA_LAUNCH_BLOCKING, by what could run side by side."""
    found = []
    gain = _gain(case)
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
    if waits_for_launches(case):
        cost = _in_line_ms(case)
        found.append(
            Finding(
                rule=NAME,
                title="CUDA_LAUNCH_BLOCKING is set: the processor waits for every kernel.",
                where=None,
                cost_ms=cost,
                fix="Unset CUDA_LAUNCH_BLOCKING.",
                fix_class="E",
                gain=Gain(0.0, cost),
            )
        )
    return found


def _gain(case: Case) -> Comparison | None:
    """While we watch, the loop's stack is deeper than otherwise, and all of it is noted for every
    operation; so the replay counts, which has the script's own, and the loop only as a bound.
    """
    by_cost = operator.attrgetter("cost_ms")
    found = [
        min(compare(replay), compare(replay, learning_ms(case)), key=by_cost)
        for replay in replays(case, "anomaly")
    ]
    return max(found, key=by_cost, default=None)


def _in_line_ms(case: Case) -> float:
    """What waiting for every launch costs: a pass takes starting and work one after the other, and
    twice the batch only twice the work; without the wait, the shorter of both is hidden.
    """
    for replay in replays(case, "double-batch"):
        once, twice = statistics.median(replay["now_ms"]), statistics.median(replay["then_ms"])
        work = min(once, max(0.0, twice - once))
        return float(learning_ms(case) * min(work, once - work) / once)
    return case.attribution.of("unattributed") + case.attribution.of("optimizer")
