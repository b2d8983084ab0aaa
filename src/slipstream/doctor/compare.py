"""Two reports of `slipstream doctor` side by side: what changed, and whether it can be told."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from slipstream.errors import UsageError

SCHEMA = "slipstream.report/1"
TOLERANCE = 0.05
_NOTICED = 0.01  # of a step: what changed by less is not worth a line

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """Milliseconds of a step. None: there is no such thing in that report."""

    name: str
    before_ms: float | None
    after_ms: float | None

    @property
    def change_ms(self) -> float:
        """More (above 0) or less than before."""
        return (self.after_ms or 0.0) - (self.before_ms or 0.0)


@dataclass(frozen=True)
class FindingChange(Change):
    """A finding of one or both reports; `name` is its rule."""

    where: str | None = None
    title: str = ""


@dataclass(frozen=True)
class Pace:
    """How fast whole epochs go; `unit` says what is counted."""

    name: str
    unit: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """More (above 0) or less than before."""
        return self.after - self.before


_AnyChange = TypeVar("_AnyChange", bound=Change)


@dataclass(frozen=True)
class Comparison:
    """What is different in the second report."""

    verdict: Literal["faster", "slower", "same"]
    why_same: str | None  # why no difference can be told
    tolerance: float
    step: Change
    ceiling: Change
    parts: tuple[Change, ...]  # those that changed, the largest change first
    gone: tuple[FindingChange, ...]
    new: tuple[FindingChange, ...]
    changed: tuple[FindingChange, ...]
    warnings: tuple[str, ...]  # what makes the two hard to compare
    paces: tuple[Pace, ...] = ()  # what both know of them

    @property
    def is_worse(self) -> bool:
        """Measurably slower, or with findings that were not there."""
        return self.verdict == "slower" or bool(self.new)


def compare(a: Report, b: Report, *, tolerance: float = TOLERANCE) -> Comparison:
    """Compare two reports, `a` before `b`. Raises `UsageError` for what is no report.

    A difference counts if its 95% interval leaves out zero and it is more than `tolerance`, a
    share of `a`'s step.
    """
    for name, report in (("a", a), ("b", b)):
        if (wrong := what_is_wrong(report)) is not None:
            raise UsageError(f"{name} is no report of slipstream doctor: {wrong}.")
    step = Change("step", a["step_ms"], b["step_ms"])
    why_same = _why_same(a, b, tolerance)
    noticed_ms = _NOTICED * max(a["step_ms"], b["step_ms"])
    parts = [Change(name, *pair) for name, pair in _paired(a["parts"], b["parts"]).items()]
    findings = _matched(a["findings"], b["findings"])
    kept = (f for f in findings if f.before_ms is not None and f.after_ms is not None)
    return Comparison(
        verdict="same" if why_same else "faster" if step.change_ms < 0 else "slower",
        why_same=why_same,
        tolerance=tolerance,
        step=step,
        ceiling=Change("ceiling", a["ceiling_ms"], b["ceiling_ms"]),
        parts=tuple(sorted(_loud(parts, noticed_ms), key=lambda part: -abs(part.change_ms))),
        gone=tuple(finding for finding in findings if finding.after_ms is None),
        new=tuple(finding for finding in findings if finding.before_ms is None),
        changed=tuple(_loud(kept, noticed_ms)),
        warnings=tuple(_warnings(a, b)),
        paces=tuple(_paces(a, b)),
    )


def load_report(path: Path) -> dict[str, Any]:
    """Read a report.json. Raises `UsageError` for anything else."""
    expected = f'Expected the JSON that `slipstream doctor --json` writes (schema "{SCHEMA}")'
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}. {expected}.") from None
    if (wrong := what_is_wrong(report)) is not None:
        raise UsageError(f"{path} is no report of slipstream doctor: {wrong}. {expected}.")
    return report


def what_is_wrong(report: object) -> str | None:
    """Say what a comparison misses in a value, or None. docs/report.schema.json has the rest.

    >>> what_is_wrong({"schema": "slipstream.capture/1"})
    "schema is 'slipstream.capture/1', not 'slipstream.report/1'"
    """
    if not isinstance(report, Mapping):
        return f"it holds a {type(report).__name__}, not an object"
    if report.get("schema") != SCHEMA:
        return f"schema is {report.get('schema')!r}, not {SCHEMA!r}"
    for name, expected, is_right in _EXPECTED:
        value: Any = report
        for key in name.split("."):
            value = value.get(key, _MISSING)
            if value is _MISSING:
                return f"{name} is missing"
        if not is_right(value):
            return f"{name} is {str(value)[:60]!r}, not {expected}"
    if report["steps"]["count"] == 0:
        return "it saw no training step"
    return None


def format_ms(value: float) -> str:
    """Milliseconds with about three digits.

    >>> format_ms(1234.5), format_ms(41.23), format_ms(0.1234)
    ('1,234.5', '41.2', '0.123')
    """
    return f"{value:,.{1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3}f}"


def _is_ms(value: object) -> bool:
    # No longer than a run can be: whole numbers in JSON may be too large to calculate with.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _are_findings(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(finding, Mapping)
        and isinstance(finding.get("rule"), str)
        and isinstance(finding.get("title"), str)
        and isinstance(finding.get("where"), str | None)
        and _is_ms(finding.get("cost_ms"))
        for finding in value
    )


_MISSING = object()
_Check = tuple[str, str, Callable[[Any], bool]]
_EXPECTED: tuple[_Check, ...] = (
    ("verdict", "a text", lambda value: isinstance(value, str)),
    ("step_ms", "a number of at least 0", lambda value: _is_ms(value) and value >= 0),
    ("ceiling_ms", "a number or null", lambda value: value is None or _is_ms(value)),
    ("parts", "numbers by name", lambda v: isinstance(v, Mapping) and all(map(_is_ms, v.values()))),
    ("findings", "a list of findings", _are_findings),
    ("machine", "an object", lambda value: isinstance(value, Mapping)),
    ("steps", "an object", lambda value: isinstance(value, Mapping)),
    ("steps.count", "a whole number", lambda value: isinstance(value, int) and value >= 0),
    ("steps.low_ms", "a number", _is_ms),
    ("steps.high_ms", "a number", _is_ms),
)


def _why_same(a: Report, b: Report, tolerance: float) -> str | None:
    change = abs(b["step_ms"] - a["step_ms"]) / a["step_ms"] if a["step_ms"] else math.inf
    if a["step_ms"] == b["step_ms"] or change <= tolerance:
        return f"{change:.1%} is within the tolerance of {100 * tolerance:.3g}%"
    if min(a["steps"]["count"], b["steps"]["count"]) < 2:
        return "a single step says nothing about how much steps differ"
    half = math.hypot(*(_half_interval(report) for report in (a, b)))
    difference = b["step_ms"] - a["step_ms"]
    if abs(difference) <= half:
        return f"the difference is {format_ms(difference)} ms, give or take {format_ms(half)} (95%)"
    return None


def _half_interval(report: Report) -> float:
    return float(report["steps"]["high_ms"] - report["steps"]["low_ms"]) / 2


def _paired(
    a: Mapping[str, float], b: Mapping[str, float]
) -> dict[str, tuple[float | None, float | None]]:
    return {name: (a.get(name), b.get(name)) for name in {**a, **b}}


def _loud(changes: Iterable[_AnyChange], noticed_ms: float) -> list[_AnyChange]:
    return [change for change in changes if abs(change.change_ms) >= max(noticed_ms, 1e-9)]


def _matched(a: list[Report], b: list[Report]) -> list[FindingChange]:
    """Findings by rule and place; edits move lines, so the file, then the rule alone will do."""
    left, right = list(a), list(b)
    pairs: list[tuple[Report | None, Report | None]] = []
    for key in (_by_line, _by_file, _by_rule):
        for before in list(left):
            after = next((each for each in right if key(each) == key(before)), None)
            if after is not None:
                pairs.append((before, after))
                left.remove(before)
                right.remove(after)
    pairs += [(before, None) for before in left] + [(None, after) for after in right]
    changes = [_finding_change(before, after) for before, after in pairs]
    return sorted(changes, key=lambda change: -abs(change.change_ms))


def _by_line(finding: Report) -> object:
    return finding["rule"], finding["where"]


def _by_file(finding: Report) -> object:
    return finding["rule"], str(finding["where"]).rpartition(":")[0]


def _by_rule(finding: Report) -> object:
    return finding["rule"]


def _finding_change(before: Report | None, after: Report | None) -> FindingChange:
    shown = after or before or {}
    return FindingChange(
        shown["rule"],
        None if before is None else before["cost_ms"],
        None if after is None else after["cost_ms"],
        shown["where"],
        shown["title"],
    )


def _paces(a: Report, b: Report) -> Iterator[Pace]:
    for name, unit in (
        ("samples_per_s", "samples a second"),
        ("epoch.s", "seconds an epoch (estimated)"),
        ("epoch.between_ms", "ms between epochs"),
    ):
        before, after = _number(a, name), _number(b, name)
        if before is not None and after is not None:
            yield Pace(name, unit, before, after)


def _number(report: Report, name: str) -> float | None:
    """What older reports do not have, and others may have filled with anything."""
    value: Any = report
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if _is_ms(value) else None


def _warnings(a: Report, b: Report) -> list[str]:
    found = []
    for name in ("script", "clock", "samples"):
        if a.get(name) != b.get(name):
            found.append(f"{name}: {a.get(name)} -> {b.get(name)}")
    before, after = _flat(a["machine"]), _flat(b["machine"])
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            found.append(f"{name}: {before.get(name, 'none')} -> {after.get(name, 'none')}")
    for title, report in (("before", a), ("after", b)):
        notes = report.get("notes", ())
        found += [f"{title}: {note}" for note in notes if isinstance(note, str)]
    return found


def _flat(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as texts. Sizes are rounded: the same machine has a few bytes less after an update."""
    flat: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value)
        elif name.endswith("_bytes") and isinstance(value, int | float):
            flat[name.removesuffix("_bytes")] = f"{value / 1e9:.2g} GB"
        elif isinstance(value, list):
            flat[name] = ", ".join(map(str, value)) or "none"
        else:
            flat[name] = str(value)
    return flat
