"""A comparison of two reports as text, 80 columns wide."""

import textwrap
from collections.abc import Iterator

from slipstream.doctor.compare import Change, Comparison, FindingChange, format_ms

_WIDTH = 80
_NAME_WIDTH = 40
_AS_FACTOR = 1.1  # from here on a factor reads better than a percentage


def comparison_text(comparison: Comparison) -> str:
    """The verdict, the parts that changed, the findings that came and went, and the warnings."""
    lines = [*_wrapped(verdict_sentence(comparison)), "", *_table(comparison)]
    for title, findings in (
        ("Gone", comparison.gone),
        ("New", comparison.new),
        ("Changed", comparison.changed),
    ):
        if findings:
            lines += ["", f"{title}:"]
            lines += [line for finding in findings for line in _finding(finding)]
    if comparison.warnings:
        lines += ["", "Take care: the two runs were not made under the same conditions."]
        lines += [line for text in comparison.warnings for line in _wrapped(text, "  ")]
    # Reports come from elsewhere: a terminal is not to obey what stands in them.
    return "\n".join(
        "".join(sign if sign.isprintable() else "�" for sign in line) for line in lines
    )


def verdict_sentence(comparison: Comparison) -> str:
    """Say in one sentence which is faster.

    >>> step, ceiling = Change("step", 41.2, 22.9), Change("ceiling", None, None)
    >>> verdict_sentence(Comparison("faster", None, 0.05, step, ceiling, (), (), (), (), ()))
    'b is 1.8 x faster: 41.2 -> 22.9 ms a step.'
    """
    before, after = comparison.step.before_ms or 0.0, comparison.step.after_ms or 0.0
    steps = f"{_ms(before)} -> {_ms(after)} ms a step"
    if comparison.verdict == "same":
        return f"No measurable difference: {steps} ({comparison.why_same})."
    low, high = sorted((before, after))
    if low > 0 and high / low >= _AS_FACTOR:
        return f"b is {_factor(high / low)} x {comparison.verdict}: {steps}."
    share = (high - low) / before if before else 1.0
    return f"b is {share:.1%} {comparison.verdict}: {steps}."


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 1.3 else f"{value:.1f}" if value < 20 else f"{value:.0f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else format_ms(value)


def _table(comparison: Comparison) -> Iterator[str]:
    if not comparison.parts:
        yield "No part of a step changed by more than 1% of it."
    yield _row("ms a step", "a", "b", "change")
    for change in (*comparison.parts, comparison.step, comparison.ceiling):
        if change.before_ms is not None or change.after_ms is not None:
            yield _change_row(change)
    if comparison.paces:
        yield ""
    for pace in comparison.paces:
        yield _row(pace.unit, _ms(pace.before), _ms(pace.after), _signed(pace.change))


def _change_row(change: Change) -> str:
    known = change.before_ms is not None and change.after_ms is not None
    difference = _signed(change.change_ms)
    if change.name == "ceiling" and not known:
        difference = "-"
    return _row(change.name, _ms(change.before_ms), _ms(change.after_ms), difference)


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{_ms(value)}"


def _row(name: str, *cells: str) -> str:
    shown = name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + "…"
    return f"  {shown:<{_NAME_WIDTH}}" + "".join(f"{cell:>12}" for cell in cells)


def _finding(finding: FindingChange) -> Iterator[str]:
    before, after = finding.before_ms, finding.after_ms
    cost = f"{_ms(after if before is None else before)} ms"
    if before is not None and after is not None:
        cost = f"{_ms(before)} -> {_ms(after)} ms"
    where = f", {finding.where}" if finding.where else ""
    yield from _wrapped(f"{finding.name}: {cost}{where}", "  ")
    if before is None:
        yield from _wrapped(finding.title, "    ")


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
