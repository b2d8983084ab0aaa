"""`repeated-preprocessing`: the same work on the same samples, every epoch."""

import itertools

from slipstream.doctor.capture import START
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.chain import chain_of
from slipstream.doctor.rules.facts import feed, is_worth, where_of

NAME = "repeated-preprocessing"
HEALTHY = "no work is done again every epoch"
_LEAST_SHARE = 0.4  # of a batch


def find(case: Case) -> list[Finding]:
    """Transforms without randomness stand before the first random one, epoch after epoch."""
    loading = feed(case)
    if loading is None or loading.loader.kind != "map":
        return []
    epochs = sum(s.kind == START and s.detail[0] == loading.loader.id for s in case.capture.spans)
    chain = chain_of(loading)
    fixed = list(itertools.takewhile(lambda link: link.is_random is False, chain))
    if epochs < 2 or not fixed or len(fixed) == len(chain):
        return []
    spent = sum(link.ms for link in fixed)
    if spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    dearest = max(fixed, key=lambda link: link.ms)
    return [
        Finding(
            rule=NAME,
            title=(
                f"{', '.join(link.name for link in fixed[:4])} give the same for a sample in every"
                f" epoch, and take {spent:.1f} of the {loading.batch_ms:.1f} ms of a batch."
            ),
            where=where_of(case, dearest.stage),
            cost_ms=cost,
            fix=(
                "Do this once and keep the results: on disk (slipstream pack), or in memory;"
                f" only what follows {fixed[-1].name} is random."
            ),
            fix_class="E",
            gain=Gain(0.7 * cost, cost),
        )
    ]
