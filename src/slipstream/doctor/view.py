"""What the page shows, as plain values: the JSON inside it. Twin of web/src/types.ts.

Times are milliseconds since the recording began. What was not measured is None, never 0. Strings
are shown as they are: the page takes none of them for HTML.
"""

from typing import Any, Literal, TypedDict

SpanValues = tuple[str, float, float, str]  # kind, start, end, label


class GainView(TypedDict):
    """Milliseconds of a step that a fix takes away."""

    low_ms: float
    high_ms: float
    how: Literal["measured", "bounded", "simulated"]


# "class" is no name in Python.
FindingView = TypedDict(
    "FindingView",
    {
        "rule": str,
        "title": str,
        "where": str | None,
        "cost_ms": float,
        "share": float,
        "gain": GainView | None,
        "fix": str,
        "class": Literal["E", "N", "S"],
        "next": str | None,
        "places": list[str],
    },
)


class HealthyView(TypedDict):
    """A rule that found nothing."""

    rule: str
    title: str


class ReportView(TypedDict):
    """The report as other programs read it. `parts` add up to `step_ms`; what no part explains is
    the part "unattributed".
    """

    schema: str
    verdict: str
    notes: list[str]
    step_ms: float
    ceiling_ms: float | None
    parts: dict[str, float]
    findings: list[FindingView]
    healthy: list[HealthyView]
    overhead: dict[str, Any]
    machine: dict[str, Any]


class LaneView(TypedDict):
    """What one worker, the loop, the copies or the device did. Spans may nest, outer ones first."""

    name: str
    kind: Literal["loop", "worker", "copy", "device"]
    spans: list[SpanValues]


class ExcerptView(TypedDict):
    """Lines around a place in the user's code. `where` is that of a finding."""

    where: str
    lines: list[tuple[int, str]]


class RungView(TypedDict):
    """A step of the ladder, with its 95 % interval."""

    name: str
    ms: float
    low: float
    high: float


class StorageView(TypedDict):
    """A folder that was read from, and how fast its storage is."""

    path: str
    filesystem: str
    sequential_mb_s: float | None
    random_mb_s: float | None
    cold_mb_s: float | None
    needed_mb_s: float | None


class PageView(TypedDict):
    """All of it. `pipeline` is `dataclasses.asdict` of a `Pipeline`."""

    report: ReportView
    script: str
    began_at: str
    clock: Literal["host", "device"]
    lanes: list[LaneView]
    steps: list[tuple[float, float]]
    excerpts: list[ExcerptView]
    ladder: list[RungView]
    memory: list[tuple[float, float, float | None]]  # ms, resident MB, device MB
    storage: list[StorageView]
    pipeline: dict[str, Any] | None
    measured_step_ms: float
