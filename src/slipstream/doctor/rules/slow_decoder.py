"""`slow-decoder`: decoding pictures is most of what workers do."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth
from slipstream.doctor.rules.pictures import decode_ms, decodes_at, pictures_of

NAME = "slow-decoder"
HEALTHY = "decoding pictures is no bottleneck"
_LEAST_SHARE = 0.4  # of a batch


def find(case: Case) -> list[Finding]:
    """The loop waits, and decoders take most of a batch."""
    loading = feed(case)
    if loading is None:
        return []
    spent = decode_ms(loading)
    if spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    pictures = pictures_of(loading)
    kinds = "" if pictures is None else f" ({', '.join(sorted(pictures.formats))})"
    slow = case.capture.settings.get("libjpeg_turbo") is False
    return [
        Finding(
            rule=NAME,
            title=(
                f"Decoding pictures{kinds} takes {spent:.1f} of the {loading.batch_ms:.1f} ms of"
                " a batch" + (", by a Pillow without libjpeg-turbo." if slow else ".")
            ),
            where=decodes_at(case, loading),
            cost_ms=cost,
            fix="Pack the pictures (slipstream pack) and read them with slipstream.Loader.",
            fix_class="N",
            gain=Gain(0.3 * cost, cost),
        )
    ]
