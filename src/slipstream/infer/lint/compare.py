"""The cases of all rules, those that take most first, for as long as there is time."""

import time
from collections.abc import Callable, Sequence

from slipstream.infer.lint.case import Case, Rule, Seen
from slipstream.infer.lint.finding import Checked, Row
from slipstream.infer.lint.measure import Turns, measure
from slipstream.timing import Call

_LEAST_SHARE = 0.01  # of a call, that a rule's gains make together
_WORTH_MEASURING = 0.002  # of a call, that a case takes now
_LEAST_S, _MOST_S = 0.3, 1.5  # for one case


def compare(
    rules: Sequence[Rule], seen: Seen, model_ms: float, until: float, wait: Call | None,
    tell: Callable[[str], None],
) -> list[Checked]:  # fmt: skip
    """One result for each rule. Gradients are off where this is called."""
    cases = [(rule, case) for rule in rules for case in rule.find(seen)]
    cases.sort(key=lambda each: -each[1].seconds)
    whole_s = sum(op.seconds for op in seen.trace.ops)
    rows: dict[str, list[Row]] = {rule.name: [] for rule in rules}
    for number, (rule, case) in enumerate(cases):
        if case.seconds < _WORTH_MEASURING * whole_s:
            rows[rule.name].append(_too_small(case, whole_s))
            continue
        tell(f"{rule.name}: {case}")
        left = until - time.monotonic()
        turns = Turns(min(_MOST_S, max(_LEAST_S, left / (len(cases) - number))), left, wait)
        rows[rule.name].append(measure(case, turns))
    return [_conclude(rule, rows[rule.name], model_ms) for rule in rules]


def _too_small(case: Case, whole_s: float) -> Row:
    share = 100 * case.seconds / whole_s
    return Row(
        str(case), case.where, count=len(case.where), state="small",
        why=f"{share:.1g} % of a call",
    )  # fmt: skip


def _conclude(rule: Rule, rows: list[Row], model_ms: float) -> Checked:
    if not rows:
        return Checked(rule.name, "absent", rule.absent)
    found = Checked(rule.name, "nothing", rule.says, rule.do, rows=rows)
    rows.sort(key=lambda row: (-row.gain_ms, -row.count * (row.now_ms or 0.0)))
    gains = [row for row in rows if row.state == "gain"]
    found.gain_ms = sum(row.gain_ms for row in gains)
    found.gain_low_ms = sum(row.gain_low_ms for row in gains)
    found.gain_high_ms = sum(row.gain_high_ms for row in gains)
    found.share = found.gain_ms / model_ms
    if gains and found.share >= _LEAST_SHARE:
        found.state = "finding"
    elif all(row.state == "unmeasured" for row in rows):
        found.state = "unmeasured"
    return found
