"""`retained-graph`: backward passes keep a graph that nothing goes through again."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case

NAME = "retained-graph"
HEALTHY = "backward passes keep no graph without need"
_LEAST_LOOKS = 2
_OFTEN = 0.5  # of the passes from this line


def find(case: Case) -> list[Finding]:
    """retain_graph=True, and none of the passes that were looked at used the graph again."""
    found = []
    for call in case.calls("backward"):
        looked_at = call.facts.get("retained_looked_at", 0)
        if looked_at < _LEAST_LOOKS or call.facts.get("retained_used", 0):
            continue
        if call.facts.get("retained", 0) < _OFTEN * call.count:
            continue
        found.append(
            Finding(
                rule=NAME,
                title=(
                    "backward(retain_graph=True) keeps the activations of every step until the"
                    " next loss is there, and nothing uses them again."
                ),
                where=call.where,
                cost_ms=0.0,
                fix="loss.backward(), which frees them as it goes.",
                fix_class="E",
            )
        )
    return found
