"""`oversized-decode`: pictures are decoded whole, and then made far smaller."""

from slipstream.doctor.attribute import Loading
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, hot_lines, is_worth
from slipstream.doctor.rules.pictures import decode_ms, pictures_of, wanted_pixels

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
            where=_decodes_at(case, loading),
            cost_ms=cost,
            fix=(
                "Make the pictures smaller once (slipstream pack --max-side), or decode JPEG at a"
                " fraction of its size: Image.draft('RGB', size) before it is loaded."
            ),
            fix_class="N",
            gain=Gain(0.4 * cost, cost),
        )
    ]


def _decodes_at(case: Case, loading: Loading) -> str | None:
    """The line that decodes, where it was seen; else where samples are read."""
    decoders = [stage for stage in loading.stages if stage.startswith("decode:")]
    dearest = max(decoders, key=lambda stage: loading.stages[stage], default="")
    lines = hot_lines(case, dearest)
    return lines[0][0] if lines else loading.loader.facts.get("read_at") or loading.loader.made_at
