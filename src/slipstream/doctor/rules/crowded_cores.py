"""`crowded-cores`: workers take the cores that the model computes with."""

import statistics
from typing import Any

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, where_of
from slipstream.doctor.rules.passes import facts_of, has_steady_shapes, passes
from slipstream.doctor.rules.replayed import replays

NAME = "crowded-cores"
HEALTHY = "workers leave the model its cores"
_FULL = 0.85  # of the cores
_LEAST_SHARE = 0.2  # of a step: caches that others have used make some difference, too
_ONE = (0.9, 1.1)


def find(case: Case) -> list[Finding]:
    """All cores are busy, a part of that with workers, and the same passes take less alone."""
    loading, used = feed(case), case.capture.settings.get("used")
    if loading is None or not loading.loader.workers or case.on_device or not used:
        return []
    if used["own"] + used["others"] < _FULL * used["cores"]:
        return []
    times = _times_ms(case)
    if times is None:
        return []
    live, alone = times
    others_ms = used["others"] * case.step_ms
    share = loading.cpu_ms / max(1e-6, loading.cpu_ms + others_ms)
    # A core that a worker has is missing to all threads that wait for each other.
    cost = share * min(live - alone, loading.cpu_ms)
    if cost < _LEAST_SHARE * case.step_ms:
        return []
    stage = max(loading.stages_cpu, key=lambda name: loading.stages_cpu[name], default="")
    return [
        Finding(
            rule=NAME,
            title=(
                f"{loading.loader.workers} workers compute {loading.cpu_ms:.0f} ms for a batch on"
                f" the {case.cores} cores that the model has: its passes take"
                f" {live:.0f} ms, and {alone:.0f} ms alone."
            ),
            where=where_of(case, stage) or loading.loader.made_at,
            cost_ms=cost,
            fix=(
                "Less work for a sample: what is the same every time done once (slipstream pack),"
                " pictures decoded by slipstream run, augmentation of whole batches."
            ),
            fix_class="N",
            gain=Gain(0.0, cost),
        )
    ]


def _times_ms(case: Case) -> tuple[float, float] | None:
    """What the passes of a step take in the loop, and when nothing else runs; None where a step has
    those of several models, or batches are of many sizes, of which one was taken.
    """
    found: list[dict[str, Any]] = replays(case, "alone")
    steps = case.attribution.steps
    if len(found) != 1 or not steps or not has_steady_shapes(facts_of(case, found[0]["model"])):
        return None
    start, end = steps[0].host[0], steps[-1].host[1]
    inside = [each for each in passes(case) if start <= each.span.start < end]
    learned = [p for p in inside if p.learns and p.model == found[0]["model"]]
    others = {p.model for p in inside} - {found[0]["model"]}
    if any(facts_of(case, model).get("elements") for model in others):
        return None
    if not _ONE[0] <= len(learned) / len(steps) <= _ONE[1]:
        return None
    live = sum(each.ms for each in learned) / len(steps) + case.attribution.of("backward")
    return live, float(statistics.median([*found[0]["now_ms"], *found[0]["then_ms"]]))
