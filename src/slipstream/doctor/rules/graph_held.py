"""`graph-held`: losses are kept with the graph that made them, and memory grows."""

import itertools

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "graph-held"
HEALTHY = "graphs are freed after their backward pass"
_LEAST_GRAPHS = 10
_ALIVE = 0.8
_LEAST_MEASURED = 3  # times that memory was looked at
_LEAST_MB = 1.0


def find(case: Case) -> list[Finding]:
    """Nearly all graphs of earlier backward passes still live."""
    for call in case.calls("backward"):
        made, alive = call.facts.get("graphs", 0), call.facts.get("graphs_alive", 0)
        if made < _LEAST_GRAPHS or alive < _ALIVE * made:
            continue
        grows = _growth_mb(case)
        by = "" if grows is None else f" by {grows:.1f} MB"
        return [
            Finding(
                rule=NAME,
                title=(
                    f"The graphs of {alive} of {made} backward passes are still held: memory grows"
                    f"{by} with every step."
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
    """Of a step, where it is more than noise: memory that only ever grows."""
    steps = case.attribution.steps
    memory = [entry for entry in case.capture.memory if entry[0] >= steps[0].host[0]]
    if len(memory) < _LEAST_MEASURED:
        return None
    took = (memory[-1][0] - memory[0][0]) * 1e-6
    growths = [memory[-1][k] - memory[0][k] for k in (1, 2) if _only_grows(memory, k)]
    grown = max(growths, default=0) / 1e6
    return grown / took * case.step_ms if took > 0 and grown >= _LEAST_MB else None


def _only_grows(memory: list[list[int]], column: int) -> bool:
    return all(a[column] <= b[column] for a, b in itertools.pairwise(memory))
