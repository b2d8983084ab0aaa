"""The report as text for a terminal."""

import textwrap
from collections.abc import Iterator, Sequence

from slipstream.infer.lint.finding import Checked, Report, Row
from slipstream.tables import short

_WIDTH = 80
_ROWS = 4  # of a finding
_LEAST_MS = 0.1  # below it, microseconds are told
_FEW_ROWS = 2  # of what was checked
_NAMES = 2


def report_text(report: Report) -> str:
    """At most 80 columns, unless a name is longer."""
    lines = [*_head(report), ""]
    findings = report.findings
    if findings:
        count = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}."
        lines += _wrap(f"{count} Layers were measured alone; gains of several rules may overlap.")
    else:
        lines.append("No findings.")
    for found in findings:
        lines += ["", *_finding(found)]
    for state, title in (
        ("nothing", "Checked, nothing to gain"),
        ("unmeasured", "Not measured"),
        ("absent", "Not in this model"),
    ):
        rest = [each for each in report.checked if each.state == state]
        if rest:
            lines += ["", title]
            lines += [line for each in rest for line in _rest(each)]
    return "\n".join(lines)


def _head(report: Report) -> Iterator[str]:
    yield from _wrap(f"{report.model} on {report.device}, input {report.inputs}")
    yield from _wrap(
        f"{_ms(report.model_ms)} a call in evaluation, {report.gflops:.3g} GFLOPs in "
        f"{report.operators} operators; checked in {report.seconds:.0f} s"
    )


def _finding(found: Checked) -> Iterator[str]:
    cost = ""
    if found.gain_ms is not None:
        low, high = found.gain_low_ms or 0.0, found.gain_high_ms or 0.0
        share = f"{100 * (found.share or 0.0):.2g} % of a call"
        cost = f": {_ms(found.gain_ms)} ({_between(low, high, found.gain_ms)}), {share}"
    yield from _wrap(f"{found.rule}{cost}")
    yield from _wrap(found.says, "  ")
    shown = [row for row in found.rows if row.state != "small"]
    for row in shown[:_ROWS]:
        yield from _row(row, "  ")
    yield from _more(found.rows, shown[:_ROWS])
    yield from _wrap(f"What helps: {found.do}", "  ")


def _rest(checked: Checked) -> Iterator[str]:
    measured = [row for row in checked.rows if row.others or row.state == "unmeasured"]
    if checked.state in ("absent", "unmeasured") and not measured:
        yield from _wrap(f"{checked.rule}: {checked.says}", "  ", "    ")
        return
    if not measured:
        small = bool(checked.rows) and all(row.state == "small" for row in checked.rows)
        says = f"too little of a call: {checked.rows[0].what}" if small else checked.says
        yield from _wrap(f"{checked.rule}: {says}", "  ", "    ")
        return
    yield f"  {checked.rule}"
    for row in measured[:_FEW_ROWS]:
        yield from _row(row, "  ")
    yield from _more(checked.rows, measured[:_FEW_ROWS])


def _more(rows: Sequence[Row], shown: Sequence[Row]) -> Iterator[str]:
    rest = [row for row in rows if not any(row is each for each in shown)]
    if rest:
        left_out = sum(row.state == "unmeasured" for row in rest)
        words = f" ({left_out} not measured: no time was left)" if left_out else ""
        yield f"  - {len(rest)} more{words}; --json has all"


def _row(row: Row, indent: str) -> Iterator[str]:
    yield from _wrap(f"- {row.what}", indent, f"{indent}  ")
    inner = f"{indent}  "
    if names := _names(row.where):
        source = f" ({row.source})" if row.source else ""
        yield from _wrap(f"in {names}{source}", inner)
    if row.state == "unmeasured":
        yield from _wrap(f"not measured: {row.why}", inner)
    elif row.now_ms is not None:
        yield from _wrap(_times(row), inner)


def _times(row: Row) -> str:
    times = f"{row.count} x " if row.count > 1 else ""
    words = [f"{times}{_ms(row.now_ms or 0.0)}"]
    words += [f"{other.what}: {times}{_ms(other.ms)}, {other.speed}" for other in row.others]
    return "; ".join(words)


def _names(where: Sequence[Sequence[str]]) -> str:
    """Of modules; those of one block joined with a plus."""
    each = list(dict.fromkeys(" + ".join(_few(name or "the model" for name in modules))
                              for modules in where))  # fmt: skip
    shown = ", ".join(each[:_NAMES])
    return f"{shown} and {len(each) - _NAMES} more" if len(each) > _NAMES else shown


def _few(names: Iterator[str]) -> list[str]:
    each = list(dict.fromkeys(names))
    return each if len(each) <= 4 else [*each[:3], f"{len(each) - 3} more"]


def _between(low: float, high: float, value: float) -> str:
    """In the unit that the value has."""
    times = 1 if value >= _LEAST_MS else 1e3
    return f"{short(times * low)} to {short(times * high)}"


def _ms(value: float) -> str:
    return f"{short(value)} ms" if value >= _LEAST_MS else f"{short(1e3 * value)} us"


def _wrap(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
