"""Reports to compare."""

from typing import Any


def finding(rule: str, cost_ms: float, where: str | None = "train.py:10") -> dict[str, Any]:
    return {
        "rule": rule,
        "title": f"The loop loses {cost_ms} ms of each step to {rule}.",
        "where": where,
        "places": [],
        "cost_ms": cost_ms,
        "share": cost_ms / 100,
        "gain": {"low_ms": 0.0, "high_ms": cost_ms, "how": "bounded"},
        "fix": "Change it.",
        "class": "E",
    }


def report(step_ms: float = 41.2, *, spread_ms: float = 0.5, **changes: Any) -> dict[str, Any]:
    """A report whose step is loading, forward and the rest."""
    parts = {"loading": step_ms - 15.0, "forward": 12.0, "unattributed": 3.0}
    steps = {
        "count": 100,
        "mean_ms": step_ms,
        "low_ms": step_ms - spread_ms,
        "high_ms": step_ms + spread_ms,
    }
    values = {
        "schema": "slipstream.report/1",
        "verdict": f"A step takes {step_ms:.1f} ms.",
        "notes": [],
        "script": "train.py",
        "clock": "host",
        "step_ms": step_ms,
        "steps": steps,
        "ceiling_ms": 15.0,
        "parts": parts,
        "findings": [],
        "healthy": [{"rule": "no-workers", "title": "samples are read while the model works"}],
        "overhead": {},
        "machine": {"cores": 8, "devices": ["H200"], "versions": {"torch": "2.13.0"}},
    }
    return {**values, **changes}
