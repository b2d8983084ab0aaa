"""Convolutions and the order of what they are given, for the rules about it."""

from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import Comparison, compare, replays


def slow_layers(case: Case, *layouts: str) -> list[Comparison]:
    """Convolutions that are slower for how their input lies, the dearest first."""
    found = [compare(r) for r in replays(case, "layer-layout") if r["layout"] in layouts]
    return sorted((entry for entry in found if entry.is_sure), key=lambda entry: -entry.cost_ms)
