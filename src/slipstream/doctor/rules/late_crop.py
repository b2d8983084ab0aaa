"""`late-crop`: whole pictures are worked on, and then most of each is cut away."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.chain import Link, chain_of
from slipstream.doctor.rules.facts import feed, is_worth

NAME = "late-crop"
HEALTHY = "pictures are cut before they are worked on"
_LEFT = 0.5  # of the picture, or less


def find(case: Case) -> list[Finding]:
    """Transforms that keep the size, before a crop that does not."""
    loading = feed(case)
    if loading is None:
        return []
    chain = chain_of(loading)
    for number, crop in enumerate(chain):
        if not is_crop(crop):
            continue
        assert crop.before is not None and crop.after is not None
        left = crop.after[1] / crop.before[1]
        early = [link for link in chain[:number] if keeps_size(link, crop.before[1])]
        spent = sum(link.ms for link in early) * (1 - left)
        cost = case.gain_without(spent)
        if not early or not is_worth(case, cost):
            return []
        dearest = max(early, key=lambda link: link.ms)
        return [
            Finding(
                rule=NAME,
                title=(
                    f"{dearest.name} works on whole pictures, and {crop.name} behind it cuts"
                    f" {1 - left:.0%} of each away."
                ),
                where=dearest.where or loading.loader.made_at,
                cost_ms=cost,
                fix=f"{crop.name} first, then {dearest.name}.",
                fix_class="S",
                gain=Gain(0.7 * cost, cost),
            )
        ]
    return []


def is_crop(link: Link) -> bool:
    """Whether it keeps half of a picture or less, as it is."""
    if link.before is None or link.after is None or not link.before[1]:
        return False
    resizes = "resize" in link.name.lower() and "crop" not in link.name.lower()
    return not resizes and 0 < link.after[1] <= _LEFT * link.before[1]


def keeps_size(link: Link, plane: int) -> bool:
    """Whether it works on as many pixels as the crop gets, pixel by pixel."""
    if link.before is None or link.after is None:
        return False
    return bool(link.before[1] == link.after[1] == plane)
