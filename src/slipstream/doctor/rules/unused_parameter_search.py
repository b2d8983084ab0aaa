"""`unused-parameter-search`: in every step ranks look for unused parameters, and find none."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case

NAME = "unused-parameter-search"
HEALTHY = "no rank looks for unused parameters that are not there"
_SEARCH = "DistributedDataParallel: unused parameters"


def find(case: Case) -> list[Finding]:
    """find_unused_parameters=True where all of them are used; what it costs the ranks together is
    more than the search that is measured.
    """
    calls = [call for call in case.calls(_SEARCH) if not call.facts.get("unused_bytes")]
    cost = sum(case.call_ms(call) for call in calls)
    if not calls:
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                "DistributedDataParallel goes through the whole graph for unused parameters and"
                f" finds none: {cost:.2f} ms of a step, and a message to all ranks."
            ),
            where=calls[0].where,
            cost_ms=cost,
            fix="DistributedDataParallel(..., find_unused_parameters=False), as by default.",
            fix_class="E",
            gain=Gain(cost, cost + case.attribution.of("backward")),
        )
    ]
