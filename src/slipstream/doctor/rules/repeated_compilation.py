"""`repeated-compilation`: torch.compile compiles again while the loop runs."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "repeated-compilation"
HEALTHY = "nothing is compiled again in the loop"


def find(case: Case) -> list[Finding]:
    """Compilations inside of steps."""
    steps = case.attribution.steps
    inside = [
        entry
        for entry in case.capture.settings.get("compilations", [])
        if any(step.host[0] <= entry["start"] < step.host[1] for step in steps)
    ]
    cost = sum(entry["ms"] for entry in inside) / max(1, len(steps))
    if not inside or not case.matters(cost):
        return []
    dearest = max(inside, key=lambda entry: float(entry["ms"]))["where"]
    asked = [call.where for call in case.calls("torch.compile") if call.where]
    # The function that is compiled may be torch's own, around the model's.
    where = asked[0] if asked and "site-packages" in dearest else dearest
    return [
        Finding(
            rule=NAME,
            title=(
                f"torch.compile compiled {len(inside)} times within {len(steps)} steps:"
                f" {cost:.1f} ms of a step."
            ),
            where=where,
            cost_ms=cost,
            fix="Keep shapes fixed (drop_last, padding), or torch.compile(..., dynamic=True).",
            fix_class="N",
            gain=Gain(0.0, cost),
        )
    ]
