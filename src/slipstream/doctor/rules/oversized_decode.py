"""`oversized-decode`: pictures are decoded whole, and then made far smaller."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth
from slipstream.doctor.rules.pictures import decode_ms, decodes_at, pictures_of, wanted_pixels

NAME = "oversized-decode"
HEALTHY = "pictures are not much larger than needed"
_RATIO = 6.0
_SHRINKING = ("transform: Image.resize", "transform: Image.thumbnail", "transform: Image.convert")


def find(case: Case) -> list[Finding]:
    """Many times the pixels that the loop gets are decoded for it."""
    loading = feed(case)
    pictures = None if loading is None else pictures_of(loading)
    wanted = None if loading is None else wanted_pixels(loading)
    if loading is None or pictures is None or not wanted:
        return []
    ratio = pictures.pixels / wanted
    if ratio < _RATIO:
        return []
    spent = decode_ms(loading) + sum(loading.stages.get(stage, 0.0) for stage in _SHRINKING)
    cost = case.gain_without(spent * (1 - 1 / ratio))
    if not is_worth(case, cost):
        return []
    kinds = ", ".join(sorted(pictures.formats, key=lambda kind: -pictures.formats[kind]))
    return [
        Finding(
            rule=NAME,
            title=(
                f"{pictures.pixels / 1e6:.2g} megapixels of a picture ({kinds}) are decoded, and"
                f" {wanted / 1e6:.2g} are used: {ratio:.0f} times as many as needed."
            ),
            where=decodes_at(case, loading),
            cost_ms=cost,
            fix=(
                "Make the pictures smaller once (slipstream pack --max-side), or decode JPEG at a"
                " fraction of its size: Image.draft('RGB', size) before it is loaded."
            ),
            fix_class="N",
            gain=Gain(0.4 * cost, cost),
        )
    ]
