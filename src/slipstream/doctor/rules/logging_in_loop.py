"""`logging-in-loop`: the loop waits for what it prints, logs and writes."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.record.writers import WRITERS
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.own_code import own_lines

NAME = "logging-in-loop"
HEALTHY = "printing and logging take no time that counts"
_SHARE, _LEAST_MS = 0.05, 0.2
_FIX = "Write every n steps, or from a thread with a queue; keep files open."
_BAR = "Let the bar be drawn less often: tqdm(…, mininterval=1), and set_postfix(…, refresh=False)."


def find(case: Case) -> list[Finding]:
    """Calls that write, and lines of the script that do nothing else."""
    costs: dict[str, float] = {}
    names: dict[str, str] = {}
    for call in case.calls(*WRITERS):
        if call.where is not None:
            costs[call.where] = costs.get(call.where, 0.0) + case.call_ms(call)
            names.setdefault(call.where, call.what)
    for line in own_lines(case):
        if "writes" in line.does and not line.over_parameters:
            costs[line.where] = costs.get(line.where, 0.0) + line.ms
    cost = sum(costs.values())
    if cost < max(_LEAST_MS, _SHARE * case.step_ms):
        return []
    places = sorted((where for where in costs if costs[where] > 0), key=lambda w: -costs[w])
    what = names.get(places[0], "a file")
    return [
        Finding(
            rule=NAME,
            title=f"The loop waits {cost:.1f} ms of a step for what it writes ({what}).",
            where=places[0],
            places=tuple(places[1:5]),
            cost_ms=cost,
            fix=_BAR if what == "tqdm.refresh" else _FIX,
            fix_class="S",
            gain=Gain(0.0, cost),
        )
    ]
