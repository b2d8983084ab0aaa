"""`frequent-checkpoint`: the loop waits while its model is written, or copied, to be kept."""

import itertools
import statistics
from bisect import bisect_right

from slipstream.doctor.capture import NEXT, OPTIMIZER, SAVE
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.record.writers import CHECKPOINTS
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.own_code import own_lines

NAME = "frequent-checkpoint"
HEALTHY = "checkpoints do not hold the loop up"
_NEAR = 10  # lines


def find(case: Case) -> list[Finding]:
    """Saves inside of steps, and copies of the model's state."""
    costs = {call.where: case.call_ms(call) for call in case.calls(*CHECKPOINTS)}
    moved = moved_with_saves(case)
    for line in own_lines(case):
        if ("state" in line.does and not line.over_parameters) or line.where in moved:
            costs[line.where] = costs.get(line.where, 0.0) + line.ms
    places = sorted((w for w in costs if w and costs[w] > 0), key=lambda w: (w in moved, -costs[w]))
    cost = sum(costs.values())
    if not places or not case.matters(cost):
        return []
    count = sum(span.kind == SAVE for step in case.attribution.steps for span in step.spans)
    if count == 1:
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"The model's state is kept {_how_often(case)}, and the loop waits for it:"
                f" {cost:.1f} ms of a step."
            ),
            where=places[0],
            places=tuple(places[1:]),
            cost_ms=cost,
            fix="Keep it less often, or write a copy of it in a thread.",
            fix_class="S",
            gain=Gain(0.0, cost),
        )
    ]


def moved_with_saves(case: Case) -> set[str]:
    """Lines near a save that rename, copy or remove files: a checkpoint is written, then moved."""
    saves = [call.where.rpartition(":") for call in case.calls(*CHECKPOINTS) if call.where]
    found = set()
    for line in own_lines(case):
        file, _, number = line.where.rpartition(":")
        is_near = any(
            file == other and abs(int(number) - int(place)) <= _NEAR for other, _, place in saves
        )
        if "moves" in line.does and is_near:
            found.add(line.where)
    return found


def _how_often(case: Case) -> str:
    """Steps from one save to the next: of most of them, since a script may also save at the end of
    an epoch. Copies that samples alone have found are not counted.
    """
    loading, steps = case.loading, case.attribution.steps
    if loading is None:
        begins = [span.end for span in case.capture.spans if span.kind == OPTIMIZER]
    else:
        waits = (span for span in case.capture.spans if span.kind == NEXT and span.detail[2] >= 0)
        begins = [span.end for span in waits if span.detail[0] == loading.loader.id]
    begins.sort()
    saved = {
        bisect_right(begins, span.start)
        for span in case.capture.spans
        if span.kind == SAVE and span.start >= steps[0].host[0]
    }
    between = [after - before for before, after in itertools.pairwise(sorted(saved))]
    if not between:
        return f"in one of {len(steps)} steps" if saved else "inside of steps"
    every = round(statistics.median(between))
    return f"every {every} steps" if every > 1 else "in every step"
