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
        backward_ms = case.attribution.of("backward")
        exposed_ns = facts.get("exchange_ns")
        cost = 0.0 if exposed_ns is None else min(spare * exposed_ns * 1e-6, backward_ms)
        if exposed_ns is not None and not case.matters(cost):
            continue
        return [
            Finding(
                rule=NAME,
                title=(
                    f"Gradients are exchanged {exchanges / max(1, steps):.1f} times for each step"
                    " of the optimizer; once would do."
                ),
                where=mode.get("where"),
                cost_ms=cost,
                fix="with model.no_sync() around all but the last part.",
                fix_class="N",
                gain=Gain(0.5 * cost, cost if exposed_ns is not None else spare * backward_ms),
            )
        ]
    return []
