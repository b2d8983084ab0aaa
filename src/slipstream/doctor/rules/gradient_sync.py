"""`gradient-sync`: gradients are exchanged after every part of an accumulated step."""

import statistics
from typing import Any

from slipstream.doctor.capture import NEXT
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import replays

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
        backward_ms = case.attribution.of("backward")
        exposed_ms = _exposed_ms(case, facts)
        most = (1 - steps / exchanges) * backward_ms
        needless = (exchanges - steps) / (_batches(case) or steps or 1)
        cost = 0.0 if exposed_ms is None else min(needless * exposed_ms, most)
        if exposed_ms is not None and not case.matters(cost):
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
                gain=Gain(0.5 * cost, most if exposed_ms is None else cost),
            )
        ]
    return []


def _exposed_ms(case: Case, facts: dict[str, Any]) -> float | None:
    """What an exchange takes beyond the backward pass; None where torch has not timed any. That a
    rank waits in it for one that comes later is not the exchange's.
    """
    timed = facts.get("exchanges_ns")
    if not timed:
        return None
    ranks = [rank for replay in replays(case, "ranks") for rank in replay["ranks"]]
    backwards = [rank["parts"].get("backward", 0.0) for rank in ranks]
    waited = max(0.0, case.attribution.of("backward") - min(backwards)) if backwards else 0.0
    return float(max(0.0, statistics.median(timed) * 1e-6 - waited))


def _batches(case: Case) -> int:
    """Of the loop, all that were given: each is a step."""
    if case.loading is None:
        return 0
    loop = case.loading.loader.id
    return sum(
        span.kind == NEXT and span.detail[0] == loop and span.detail[2] >= 0
        for span in case.capture.spans
    )
