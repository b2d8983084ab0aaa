"""`for-loop-optimizer`: the optimizer goes through the parameters one by one."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.replayed import compare, replays

NAME = "for-loop-optimizer"
HEALTHY = "the optimizer's step is as fast as its other forms"
# The default on processors is a loop: a finding only where it counts.
_SHARE_OF_DEFAULT, _LEAST_MS_OF_DEFAULT = 0.15, 1.0


def find(case: Case) -> list[Finding]:
    """The faster of the other forms, measured on copies."""
    part = case.attribution.of("optimizer")
    ways = {
        way: [compare(replay, part) for replay in replays(case, f"optimizer-{way}")]
        for way in ("fused", "foreach")
    }
    all_found = [(way, entry) for way, entries in ways.items() for entry in entries]
    if not all_found:
        return []
    way, best = max(all_found, key=lambda found: found[1].cost_ms)
    least = max(_LEAST_MS_OF_DEFAULT, _SHARE_OF_DEFAULT * case.step_ms)
    least = 0.0 if best.replay["was_asked"] else least
    if not best.is_sure or not case.matters(best.cost_ms) or best.cost_ms < least:
        return []
    facts = next((o for o in case.capture.optimizers if o["id"] == best.replay["optimizer"]), {})
    name = facts.get("class", "The optimizer")
    return [
        Finding(
            rule=NAME,
            title=(
                f"{name} goes through its {facts.get('parameters', '')} parameters one by one:"
                f" {best.cost_ms:.1f} of {part:.1f} ms a step."
            ),
            where=best.replay["where"],
            cost_ms=best.cost_ms,
            fix=f"{name}(..., {way}=True).",
            fix_class="N",
            gain=best.gain,
        )
    ]
