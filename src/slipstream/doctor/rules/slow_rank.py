"""`slow-rank`: one rank comes late to every exchange of gradients, and all others wait."""

import statistics
from itertools import pairwise
from typing import Any

from slipstream.doctor.attribute import LOADING
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import replays

NAME = "slow-rank"
HEALTHY = "all ranks take the same time"
_SHARE = 0.1
_LEAST_STEPS = 5
_PIECES = 4


def find(case: Case) -> list[Finding]:
    """What a rank does outside of the backward pass, where gradients are exchanged."""
    ranks = [rank for replay in replays(case, "ranks") for rank in replay["ranks"]]
    if len(ranks) < 2 or min(rank["steps"] for rank in ranks) < _LEAST_STEPS:
        return []
    slowest = max(ranks, key=before_exchange)
    others = [rank for rank in ranks if rank is not slowest]
    usual = statistics.median(before_exchange(rank) for rank in others)
    cost = before_exchange(slowest) - usual
    # Ranks that do not wait for each other are slow by themselves.
    waits = statistics.median(rank["parts"].get("backward", 0.0) for rank in others)
    cost = min(cost, max(0.0, waits - slowest["parts"].get("backward", 0.0)))
    if cost < _SHARE * case.step_ms or not case.matters(cost):
        return []
    if not _is_late_throughout(slowest, others, 0.5 * _SHARE * case.step_ms):
        return []
    part, more = _most_of_it(slowest, others)
    return [
        Finding(
            rule=NAME,
            title=(
                f"Rank {slowest['rank']} comes {cost:.1f} ms later to the exchange of gradients"
                f" than the others, which wait: {part} takes it {more:.1f} ms more."
            ),
            where=_where(case, part),
            cost_ms=cost,
            fix="Give all ranks the same work: data alike, and what one does alone seldom.",
            fix_class="S",
            gain=Gain(0.0, cost),
        )
    ]


def before_exchange(rank: dict[str, Any]) -> float:
    """Milliseconds of a step outside of the backward pass."""
    return float(rank["step_ms"] - rank["parts"].get("backward", 0.0))


def _is_late_throughout(
    slowest: dict[str, Any], others: list[dict[str, Any]], least_ms: float
) -> bool:
    """In each part of the window: ranks that fight for cores take turns at being late."""
    own = _pieces(slowest)
    return all(
        mine - statistics.median(theirs) >= least_ms
        for mine, *theirs in zip(own, *(_pieces(other) for other in others), strict=True)
    )


def _pieces(rank: dict[str, Any]) -> list[float]:
    """Means of its steps before the exchange."""
    times = rank["before_exchange_ms"]
    edges = [len(times) * piece // _PIECES for piece in range(_PIECES + 1)]
    return [statistics.fmean(times[start:end]) for start, end in pairwise(edges)]


def _most_of_it(slowest: dict[str, Any], others: list[dict[str, Any]]) -> tuple[str, float]:
    more = {
        part: ms - statistics.median(other["parts"].get(part, 0.0) for other in others)
        for part, ms in slowest["parts"].items()
        if part != "backward"
    }
    part = max(more, key=lambda name: more[name])
    return ("its own code" if part == "unattributed" else part), more[part]


def _where(case: Case, part: str) -> str | None:
    if part == LOADING and case.loading is not None:
        return case.loading.loader.made_at
    return None
