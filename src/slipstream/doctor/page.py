"""Fills the page of a report: lanes, excerpts, and what the simulation starts from."""

import dataclasses
import linecache
from collections.abc import Sequence
from typing import Any

from slipstream.doctor.attribute import Attribution, attribute
from slipstream.doctor.capture import COPY, FETCH, NEXT, Capture, Process
from slipstream.doctor.measured import pipeline_of
from slipstream.doctor.record.places import full_path
from slipstream.doctor.view import ExcerptView, LaneView, PageView, SpanValues, StorageView

_MS = 1e-6
_SHOWN_STEPS = 40
_MOST_SPANS = 4000
_AROUND = 0  # lines more than those that findings name: none, a report is passed around
_LONGEST_LINE = 200


def page_of(capture: Capture, report: dict[str, Any]) -> PageView:
    """The page's data. Of the user's source it has the lines around places that findings name."""
    attribution = attribute(capture)
    shown = attribution.steps[:_SHOWN_STEPS]
    begin = shown[0].host[0] if shown else 0
    end = shown[-1].host[1] if shown else 0
    report_keys = (
        "schema", "verdict", "notes", "step_ms", "ceiling_ms", "parts", "findings", "healthy",
        "overhead", "machine",
    )  # fmt: skip
    return {
        "report": {key: report[key] for key in report_keys},  # type: ignore[typeddict-item]
        "script": capture.script,
        "began_at": capture.began_at,
        "clock": "device" if capture.clock == "device" else "host",
        "lanes": _lanes(capture, attribution, begin, end),
        "steps": [((s.host[0] - begin) * _MS, (s.host[1] - begin) * _MS) for s in shown],
        "excerpts": _excerpts([f["where"] for f in report["findings"] if f["where"]]),
        "ladder": report["ladder"],
        "memory": [
            (at * _MS, resident / 1e6, on_device / 1e6 if capture.clock == "device" else None)
            for at, resident, on_device in capture.memory
        ],
        "storage": [storage_view(found, attribution) for found in capture.storage],
        "pipeline": _pipeline(capture, attribution),
        "measured_step_ms": attribution.step_ms,
    }


def needed_mb_s(attribution: Attribution) -> float | None:
    """What the loop reads in a second, of storage or of the page cache."""
    loading = attribution.loading
    if loading is None or loading.read_chars is None or not attribution.step_ms:
        return None
    return loading.read_chars / attribution.step_ms * 1e3 / 1e6


def storage_view(found: dict[str, Any], attribution: Attribution) -> StorageView:
    """What was measured of a folder's storage, beside what the loop needs."""
    mount = found.get("mount") or {}
    cold, warm = found["cold"], found["warm"]
    return {
        "path": found["folder"],
        "filesystem": str(mount.get("kind", "")),
        "sequential_mb_s": _mb(warm["sequential_bytes_per_s"]),
        "random_mb_s": _mb(warm["random_bytes_per_s"]),
        "cold_mb_s": _mb(cold["random_bytes_per_s"]),
        "needed_mb_s": needed_mb_s(attribution),
    }


def _mb(rate: float | None) -> float | None:
    return None if rate is None else rate / 1e6


def _lanes(capture: Capture, attribution: Attribution, begin: int, end: int) -> list[LaneView]:
    spans = [s for s in capture.spans if s.end > begin and s.start < end]
    spans.sort(key=lambda span: (span.start, -span.end))
    lanes: list[LaneView] = [
        {
            "name": "loop",
            "kind": "loop",
            "spans": [
                _span(s.kind, s.start - begin, s.end - begin, _label(s.kind, s.detail))
                for s in spans[:_MOST_SPANS]
            ],
        }
    ]
    copies = [_span(COPY, s.start - begin, s.end - begin, "copy") for s in spans if s.kind == COPY]
    if copies:
        lanes.append({"name": "copies", "kind": "copy", "spans": copies})
    loading = attribution.loading
    for process in loading.processes if loading is not None else ():
        if process.number is not None:
            lanes.append(_worker_lane(process, begin, end))
    return lanes


def _worker_lane(process: Process, begin: int, end: int) -> LaneView:
    spans = [
        _span(FETCH, start - begin, stop - begin, f"batch {number} of this worker")
        for number, start, stop, *_ in process.batches
        if stop > begin and start < end
    ]
    return {"name": f"worker {process.number}", "kind": "worker", "spans": spans[:_MOST_SPANS]}


def _span(kind: str, start: int, end: int, label: str) -> SpanValues:
    return kind, round(start * _MS, 3), round(end * _MS, 3), label


def _label(kind: str, detail: Any) -> str:
    if kind == NEXT:
        return "waits for a batch" if detail[2] >= 0 else "end of the epoch"
    return kind


def _excerpts(places: Sequence[str]) -> list[ExcerptView]:
    found: list[ExcerptView] = []
    for where in dict.fromkeys(places):
        file, _, number = where.rpartition(":")
        if not number.isdigit():
            continue
        line = int(number)
        text = linecache.getlines(full_path(file))
        lines = [
            (k, text[k - 1].rstrip("\n")[:_LONGEST_LINE])
            for k in range(max(1, line - _AROUND), min(len(text), line + _AROUND) + 1)
        ]
        if lines:
            found.append({"where": where, "lines": lines})
    return found


def _pipeline(capture: Capture, attribution: Attribution) -> dict[str, Any] | None:
    pipeline = pipeline_of(capture, attribution)
    return None if pipeline is None else dataclasses.asdict(pipeline)
