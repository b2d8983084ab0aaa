"""`slow-transform`: one transform, or one line of the dataset, is most of what workers do."""

from slipstream.doctor.attribute import Loading
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules import needless_copy, too_few_workers
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import (
    feed,
    hot_lines,
    is_worth,
    stage_blocked_ms,
    where_of,
)
from slipstream.doctor.rules.per_sample_indexing import is_in_memory

NAME = "slow-transform"
HEALTHY = "no transform stands out"
_LEAST_SHARE = 0.4  # of a batch
_MOST_WAITING = 0.3
_OTHERS = 3.0  # times as much as the next


def find(case: Case) -> list[Finding]:
    """The loop waits, and one stage of the user's own takes most of a batch."""
    loading = feed(case)
    if loading is None or is_in_memory(loading):
        return []
    stage = dominant(loading)
    if stage is None:
        return []
    own_code = stage == "dataset"
    if own_code and loading.loader.facts.get("read_at") is None:
        return []  # a library's: there is nothing to rewrite
    if own_code:
        blocked = stage_blocked_ms(loading, stage)
        waits = blocked > _MOST_WAITING * (blocked + loading.stages_cpu[stage])
        # That it waits for storage, or that there are too few to do it, is another cause.
        if waits or too_few_workers.find(case):
            return []
    spent = loading.stages[stage]
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    where = where_of(case, stage)
    lines = hot_lines(case, stage)
    name = f"{loading.loader.dataset}'s own code" if own_code else stage.partition(": ")[2]
    return [
        Finding(
            rule=NAME,
            title=(
                f"{name} takes {spent:.1f} of the {loading.batch_ms:.1f} ms that a batch takes"
                f" {'one worker' if loading.loader.workers else 'the loop'}."
            ),
            where=where,
            cost_ms=cost,
            fix=(
                "Do this once, in advance, and keep the result; or write it with fewer steps of"
                " Python; or do it on the device, for a whole batch."
            ),
            fix_class="S",
            gain=Gain(0.5 * cost, cost),
            places=tuple(place for place, _ in lines[:3] if place != where),
        )
    ]


def dominant(loading: Loading) -> str | None:
    """The transform, or the dataset's own code, that takes far more than any other stage."""
    own = {
        stage: ms
        for stage, ms in loading.stages.items()
        if stage.startswith("transform:") or stage == "dataset"
    }
    if not own:
        return None
    stage = max(own, key=lambda name: own[name])
    # What `needless-copy` is about is mended by itself.
    others = (ms for s, ms in loading.stages.items() if s not in (stage, needless_copy.STAGE))
    rest = max(others, default=0.0)
    is_most = own[stage] >= _LEAST_SHARE * loading.batch_ms
    stands_out = own[stage] >= _OTHERS * rest or own[stage] >= 0.6 * loading.batch_ms
    return stage if is_most and stands_out else None
