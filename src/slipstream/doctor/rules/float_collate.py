"""`float-collate`: pictures become floating-point numbers in workers, four bytes for each one."""

from slipstream.doctor.attribute import Loading
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.chain import Link, chain_of, is_float
from slipstream.doctor.rules.facts import feed, is_worth
from slipstream.doctor.rules.pictures import wanted_pixels

NAME = "float-collate"
HEALTHY = "pictures travel as bytes"
_SAVED = 0.75  # three of four bytes need not be written


def find(case: Case) -> list[Finding]:
    """Casting, normalizing and collating floats takes a part of a step."""
    loading = feed(case)
    if loading is None or not _gives_floats(loading):
        return []
    casts = casting(chain_of(loading))
    if not casts:
        return []
    spent = sum(link.ms for link in casts) + _SAVED * loading.stages.get("collate", 0.0)
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    names = ", ".join(link.name for link in casts)
    dearest = max(casts, key=lambda link: link.ms)
    return [
        Finding(
            rule=NAME,
            title=(
                f"{names} and collating floats take {spent:.1f} of the {loading.batch_ms:.1f} ms of"
                f" a batch; as bytes it would have a quarter of its"
                f" {(loading.loader.batch_bytes or 0) / 2**20:.1f} MiB."
            ),
            where=dearest.where or loading.loader.made_at,
            cost_ms=cost,
            fix=(
                "Leave pictures uint8 in workers; cast and normalize the batch behind the loader,"
                " on the device (slipstream.Augment)."
            ),
            fix_class="N",
            gain=Gain(0.5 * cost, cost),
        )
    ]


def casting(chain: list[Link]) -> list[Link]:
    """The transform that makes floats of bytes, and those behind it that draw no random numbers
    and keep the size.
    """
    for number, link in enumerate(chain):
        if is_float(link.after) and not is_float(link.before) and link.before is not None:
            behind = [
                other
                for other in chain[number + 1 :]
                if not other.is_random and other.before == other.after and is_float(other.after)
            ]
            return [link, *behind]
    return []


def _gives_floats(loading: Loading) -> bool:
    kinds = {dtype for _, dtype, shape, *_ in loading.loader.tensors if len(shape) == 4}
    return wanted_pixels(loading) is not None and bool(kinds & {"float32", "float64"})
