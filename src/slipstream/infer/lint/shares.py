"""What part of a call something takes, from rounds in which both were timed."""

from collections.abc import Sequence
from statistics import median

from slipstream.infer.lint.finding import Checked, Row
from slipstream.timing import ratio_of

_ALMOST_NOTHING_S = 1e-12


def checked_share(
    rule: str, model_s: Sequence[float], part_s: Sequence[float], least: float,
    words: tuple[str, str, list[Row]],
) -> Checked:  # fmt: skip
    """A finding if the part surely takes `least` of a call. `words`: what is said, with a place for
    the share, what to do, and what the part is made of.
    """
    says, do, rows = words
    parts = [max(part, _ALMOST_NOTHING_S) for part in part_s]
    ratio = ratio_of(list(model_s), parts)
    share, low, high = 1 / ratio.value, 1 / ratio.high, 1 / ratio.low
    model_ms = 1e3 * median(model_s)
    told = f"{100 * share:.2g} % ({100 * low:.2g} to {100 * high:.2g} %)"
    return Checked(
        rule,
        "finding" if low >= least else "nothing",
        says.format(told),
        do,
        gain_ms=share * model_ms,
        gain_low_ms=low * model_ms,
        gain_high_ms=high * model_ms,
        share=share,
        rows=rows,
    )
