"""`frequent-evaluation`: a large part of the time goes into validation."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules import eval_with_grad
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import evaluations, facts_of, inside_ms, passes

NAME = "frequent-evaluation"
HEALTHY = "validation takes a small part of the time"
_INSIDE = 0.25  # of a step, where an epoch is interrupted for it
_BETWEEN = 0.5  # of all, at the end of epochs


def find(case: Case) -> list[Finding]:
    """Within epochs, or at their ends, or of single batches in every step."""
    if eval_with_grad.find(case):
        return []  # cheaper evaluation comes before less of it
    steps = case.attribution.steps
    own = [
        entry
        for entry in passes(case)
        if not entry.training
        and not entry.learns
        and facts_of(case, entry.model).get("with_gradient")
        and not any(start <= entry.span.start < end for start, end in evaluations(case))
        and any(step.host[0] <= entry.span.start < step.host[1] for step in steps)
    ]  # fmt: skip
    # Without gradients, it is a part of the step already.
    inside = inside_ms(case) + sum(entry.ms for entry in own if entry.with_grad) / len(steps)
    since = steps[0].host[0]
    total_ms = sum(step.end - step.start for step in steps) * 1e-6
    whole_ms = sum(max(0, end - max(start, since)) for start, end in evaluations(case)) * 1e-6
    if inside >= _INSIDE * case.step_ms:
        cost, share = inside, inside / case.step_ms
    elif whole_ms >= _BETWEEN * (whole_ms + total_ms) and case.loading is not None:
        cost, share = whole_ms / len(steps), whole_ms / (whole_ms + total_ms)
    else:
        return []
    others = [
        loader.used_at
        for loader in case.capture.loaders
        if case.loading is not None and loader.id != case.loading.loader.id
    ]
    where = others[0] if others else None
    if own and not others:
        modes = facts_of(case, own[0].model).get("modes", {})
        where = next((modes[m]["where"] for m in ("eval no_grad", "eval") if m in modes), None)
    return [
        Finding(
            rule=NAME,
            title=f"Validation takes {share:.0%} of the time: {cost:.1f} ms a step.",
            where=where,
            cost_ms=cost,
            fix="Validate less often, or on a part of the data.",
            fix_class="S",
            gain=Gain(0.0, cost),
        )
    ]
