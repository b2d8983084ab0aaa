"""`python-in-loop`: the model waits while the loop's thread does work of the script's own."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.device_idle import built_lines
from slipstream.doctor.rules.frequent_checkpoint import moved_with_saves
from slipstream.doctor.rules.own_code import OwnLine, own_lines, places

NAME = "python-in-loop"
HEALTHY = "between its parts a step does little else"
_SHARE, _LEAST_MS = 0.08, 0.5
_LEAST_SAMPLES = 5
_TAKE_OUT = "Take it out, or do what it waits for in a thread."
_ELSEWHERE = (
    "Do it in the dataset, where workers run ahead, or with torch on the model's device, or less"
    " often."
)


def find(case: Case) -> list[Finding]:
    """Lines that are no part of the model, and no cause that has a rule of its own."""
    named = built_lines(case) | moved_with_saves(case)
    lines = [
        line
        for line in own_lines(case)
        if line.is_surely_own and line.where not in named and not _has_own_rule(line)
    ]
    cost = sum(line.ms for line in lines)
    samples = sum(line.samples for line in lines)
    if (
        not case.matters(cost)
        or cost < max(_LEAST_MS, _SHARE * case.step_ms)
        or samples < _LEAST_SAMPLES
    ):
        return []
    found = places(lines)
    does = {n for line in lines if found[0] in (line.where, line.outer) for n in line.does}
    return [
        Finding(
            rule=NAME,
            title=(
                f"{_work(does)} in the loop's own thread takes {cost:.1f} ms of a step; the model"
                " waits meanwhile."
            ),
            where=found[0],
            places=tuple(found[1:4]),
            cost_ms=cost,
            fix=_TAKE_OUT if "sleeps" in does else _ELSEWHERE,
            fix_class="S",
            gain=Gain(0.0, cost),
        )
    ]


def _has_own_rule(line: OwnLine) -> bool:
    return line.over_parameters is not None or bool(line.does & {"writes", "state"})


def _work(does: set[str]) -> str:
    if "sleeps" in does:
        return "A sleep"
    return "Work on arrays" if "arrays" in does else "Python code"
