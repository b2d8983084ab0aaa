"""`graph-held`: losses are kept with the graph that made them, and memory grows."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "graph-held"
HEALTHY = "graphs are freed after their backward pass"
_LEAST_GRAPHS = 10
_ALIVE = 0.8


def find(case: Case) -> list[Finding]:
    """Nearly all graphs of earlier backward passes still live."""
    for call in case.calls("backward"):
        made, alive = call.facts.get("graphs", 0), call.facts.get("graphs_alive", 0)
        if made < _LEAST_GRAPHS or alive < _ALIVE * made:
            continue
        grows = _growth_mb(case)
        return [
            Finding(
                rule=NAME,
                title=(
                    f"The graphs of all {alive} backward passes are still held: memory"
                    f" {'grows by ' + format(grows, '.1f') + ' MB' if grows else 'grows'} a step."
                ),
                where=call.facts.get("kept_at") or call.where,
                cost_ms=0.0,
                fix="Add up numbers: total += loss.item(), or loss.detach() on a GPU.",
                fix_class="E",
                gain=Gain(0.0, 0.0),
            )
        ]
    return []


def _growth_mb(case: Case) -> float | None:
    """Of a step, where it is more than noise."""
    steps, memory = case.attribution.steps, case.capture.memory
    if len(memory) < 4 or not steps:
        return None
    half = memory[len(memory) // 2 :]
    took = (half[-1][0] - half[0][0]) * 1e-6
    grown = max(half[-1][k] - half[0][k] for k in (1, 2)) / 1e6
    return grown / took * case.step_ms if took > 0 and grown > 8 else None
