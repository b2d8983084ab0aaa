"""`gradient-sync`: gradients are exchanged after every part of an accumulated step."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "gradient-sync"
HEALTHY = "gradients are exchanged once for each step of the optimizer"
_MORE = 1.5


def find(case: Case) -> list[Finding]:
    """DistributedDataParallel without no_sync() while gradients are accumulated."""
    steps = sum(span.kind == "optimizer" for span in case.capture.spans)
    for facts in case.capture.model.get("models", []):
        mode = facts.get("modes", {}).get("train", {})
        exchanges = mode.get("synced", 0)
        if facts.get("class") != "DistributedDataParallel" or exchanges < _MORE * max(1, steps):
            continue
        spare = 1 - steps / exchanges
        return [
            Finding(
                rule=NAME,
                title=(
                    f"Gradients are exchanged {exchanges / max(1, steps):.1f} times for each step"
                    " of the optimizer; once would do."
                ),
                where=mode.get("where"),
                # What an exchange takes beyond the backward pass it hides behind is not known.
                cost_ms=0.0,
                fix="with model.no_sync() around all but the last part.",
                fix_class="N",
                gain=Gain(0.0, spare * case.attribution.of("backward")),
            )
        ]
    return []
