"""`wide-dtype`: twice the bytes that a model can use."""

from slipstream.doctor.attribute import Loading
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth
from slipstream.doctor.rules.own_code import own_lines

NAME = "wide-dtype"
HEALTHY = "batches have no 64-bit numbers to speak of"
_LEAST_BYTES = 256 << 10
_LEAST_SHARE = 0.5  # of a batch's bytes


def find(case: Case) -> list[Finding]:
    """float64 samples, or int64 ones with the dimensions of pictures."""
    loading = feed(case)
    if loading is None or not loading.loader.batch_bytes:
        return []
    wide = [
        entry
        for entry in loading.loader.tensors
        if entry[1] == "float64" or (entry[1] == "int64" and len(entry[2]) >= 3)
    ]
    size = sum(entry[3] for entry in wide)
    if size < max(_LEAST_BYTES, _LEAST_SHARE * loading.loader.batch_bytes):
        return []
    # Half of the bytes, and of the time to write, hand over and read them.
    cost = case.gain_without(0.5 * loading.stages.get("collate", 0.0))
    cost += 0.5 * (min(loading.hand_over_ms, case.waits_ms) + _let_go_ms(case, loading))
    if not is_worth(case, cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"{size / 2**20:.1f} MiB of a batch are {wide[0][1]} ({wide[0][0]},"
                f" {wide[0][2]}): half of that would do."
            ),
            where=loading.loader.facts.get("read_at") or loading.loader.made_at,
            cost_ms=cost,
            fix=(
                "Cast once, in the dataset or in advance: float32 for float64, int32 or uint8 for"
                " int64."
            ),
            fix_class="N",
            gain=Gain(0.5 * cost, cost),
        )
    ]


def _let_go_ms(case: Case, loading: Loading) -> float:
    """What the loop's own line takes outside of waiting: there the batch before is let go, and its
    shared memory given back.
    """
    if not loading.loader.workers:
        return 0.0
    return sum(line.ms for line in own_lines(case) if line.where == loading.loader.used_at)
