"""`heavy-augmentation`: random changes to samples, together, are most of what workers do."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.chain import chain_of
from slipstream.doctor.rules.facts import feed, is_worth
from slipstream.doctor.rules.slow_transform import dominant

NAME = "heavy-augmentation"
HEALTHY = "augmentation is no bottleneck"
_LEAST_SHARE = 0.4  # of a batch


def find(case: Case) -> list[Finding]:
    """Two or more random transforms, none of which stands out, and the loop waits."""
    loading = feed(case)
    if loading is None or dominant(loading) is not None:
        return []
    links = [link for link in chain_of(loading) if link.is_random and link.ms > 0]
    spent = sum(link.ms for link in links)
    if len(links) < 2 or spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    links.sort(key=lambda link: -link.ms)
    return [
        Finding(
            rule=NAME,
            title=(
                f"{len(links)} random transforms take {spent:.1f} of the {loading.batch_ms:.1f} ms"
                f" of a batch: {', '.join(f'{link.name} {link.ms:.1f}' for link in links[:4])}."
            ),
            where=links[0].where or loading.loader.made_at,
            cost_ms=cost,
            fix="Augment on the device, a batch at a time: slipstream.Augment.",
            fix_class="N",
            gain=Gain(0.5 * cost, cost),
            places=tuple(link.where for link in links[1:4] if link.where is not None),
        )
    ]
