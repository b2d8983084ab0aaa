"""`empty-cache-in-loop`: device memory is given back and fetched again in every step."""

from slipstream.doctor.capture import CALL, Call
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import compare, replays

NAME = "empty-cache-in-loop"
HEALTHY = "torch.cuda.empty_cache() is not called in the loop"


def find(case: Case) -> list[Finding]:
    """Calls of it inside of steps, and that what follows must ask the driver again."""
    calls = case.calls("torch.cuda.empty_cache")
    inside = sum(case.call_ms(call) for call in calls)
    replayed = [compare(replay).cost_ms for replay in replays(case, "empty-cache")]
    cost = max([inside, *(_per_step(case, calls) * ms for ms in replayed)]) if inside else 0.0
    if not case.matters(cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=f"torch.cuda.empty_cache() costs {cost:.1f} ms of a step.",
            where=calls[0].where,
            cost_ms=cost,
            fix="Leave it out: the cache is there to be used again.",
            fix_class="E",
            gain=Gain(inside, cost),
        )
    ]


def _per_step(case: Case, calls: list[Call]) -> float:
    ids = {call.id for call in calls}
    steps = case.attribution.steps
    made = sum(s.kind == CALL and s.detail in ids for step in steps for s in step.spans)
    return made / len(steps)
