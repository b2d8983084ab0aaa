"""The report as a plain value: what docs/report.schema.json describes."""

import dataclasses
import math
import shlex
import statistics
from typing import Any

from slipstream.doctor.attribute import LOADING, UNATTRIBUTED, Attribution, attribute
from slipstream.doctor.capture import Capture, Rung
from slipstream.doctor.crowd import crowded
from slipstream.doctor.finding import Finding
from slipstream.doctor.page import storage_view
from slipstream.doctor.rules import all_rules
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.needs import was_looked_at
from slipstream.doctor.rules.precedence import arrange
from slipstream.doctor.rules.replayed import replays
from slipstream.run.cures import CURES, NUMERIC

SCHEMA = "slipstream.report/1"
_UNSEEN = {"error": "failed", "interrupted": "was interrupted"}
_LOUD = 0.10  # of a step: from here on it decides the verdict
ARGUMENTS = "ARGS"
_FEW_STEPS = 20
_ABOUT = 1.1
_SLOWED_BY_HEAT = 0.1


def make_report(capture: Capture) -> dict[str, Any]:
    """What is slow in a recorded run."""
    attribution = attribute(capture)
    case = Case(capture, attribution)
    findings: list[Finding] = []
    healthy = []
    if attribution.steps:
        for rule in all_rules():
            found = rule.find(case)
            findings += found
            if not found and was_looked_at(rule.name, case):
                healthy.append({"rule": rule.name, "title": rule.healthy})
    findings = arrange(findings)
    low, high = attribution.interval_ms
    return {
        "schema": SCHEMA,
        "verdict": _verdict(case, findings),
        "notes": _notes(case),
        "script": capture.script,
        "began_at": capture.began_at,
        "clock": capture.clock,
        "step_ms": attribution.step_ms,
        "steps": {
            "count": len(attribution.steps),
            "mean_ms": attribution.step_ms,
            "low_ms": low,
            "high_ms": high,
        },
        "samples": attribution.loading.samples if attribution.loading else None,
        "samples_per_s": _samples_per_s(attribution),
        "epoch": _epoch(attribution),
        "ceiling_ms": _ceiling(capture, attribution),
        "parts": dict(attribution.parts),
        "ladder": [_rung(rung) for rung in capture.ladder if rung.step_ms],
        "storage": [storage_view(found, attribution) for found in capture.storage],
        "findings": [_as_dict(finding, attribution, capture) for finding in findings],
        "healthy": healthy,
        "overhead": capture.overhead,
        "machine": capture.machine,
    }


def _samples_per_s(attribution: Attribution) -> float | None:
    loading = attribution.loading
    if loading is None or not attribution.step_ms:
        return None
    # Our own loader does not say what it read.
    samples = loading.samples or loading.loader.batch_size
    return 1000 * samples / attribution.step_ms if samples else None


def _epoch(attribution: Attribution) -> dict[str, Any] | None:
    """How long one takes, as far as it was seen; None where nobody knows how many steps it has."""
    epochs = attribution.epochs
    if not epochs.steps or not attribution.step_ms:
        return None
    between_ms = statistics.mean(epochs.gaps_ms) if epochs.gaps_ms else None
    took_ms = epochs.steps * attribution.step_ms + (between_ms or 0.0)
    return {"steps": epochs.steps, "between_ms": between_ms, "s": took_ms / 1000}


def _ceiling(capture: Capture, attribution: Attribution) -> float | None:
    """A step on a batch that is there already: measured by the ladder, else what is left of a step
    without loading. None where nothing is loaded.
    """
    if not attribution.steps:
        return None
    for rung in capture.ladder:
        if rung.name == "cached batch" and rung.step_ms:
            return sum(rung.step_ms) / len(rung.step_ms)
    loading_ms = attribution.of(LOADING)
    return attribution.step_ms - loading_ms if loading_ms else None


def _rung(rung: Rung) -> dict[str, Any]:
    mean = statistics.mean(rung.step_ms)
    spread = 0.0
    if len(rung.step_ms) > 1:
        spread = 1.96 * statistics.stdev(rung.step_ms) / math.sqrt(len(rung.step_ms))
    return {"name": rung.name, "ms": mean, "low": mean - spread, "high": mean + spread}


def _as_dict(finding: Finding, attribution: Attribution, capture: Capture) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "title": finding.title,
        "where": finding.where,
        "places": list(finding.places),
        "cost_ms": finding.cost_ms,
        "share": finding.cost_ms / attribution.step_ms if attribution.step_ms else 0.0,
        "gain": None if finding.gain is None else dataclasses.asdict(finding.gain),
        "fix": finding.fix,
        "class": finding.fix_class,
        "next": next_command(finding, capture),
    }


def next_command(finding: Finding, capture: Capture) -> str | None:
    """What to type now; None where there is nothing but to change the script. ARGS stand for the
    script's, which a report does not have.
    """
    script = capture.script
    fix = CURES.get(finding.rule) if finding.has_cure else None
    if fix is None or (not script.endswith(".py") and not script.startswith("-m ")):
        return None
    allow = "--allow numeric " if fix in NUMERIC else ""
    behind = f" {ARGUMENTS}" if capture.settings.get("arguments") else ""
    return f"slipstream run {allow}--only {fix} {quoted(script)}{behind}"


def quoted(script: str) -> str:
    """As a shell takes it."""
    if script.startswith("-m "):
        return f"-m {shlex.quote(script[3:])}"
    return shlex.quote(script)


def _notes(case: Case) -> list[str]:
    """What speaks against trusting the numbers."""
    found = []
    capture, steps = case.capture, len(case.attribution.steps)
    if capture.ended == "interrupted" and steps:
        found.append("The script was interrupted: this is what was seen until then.")
    if capture.ended == "error" and steps:
        found.append("The script failed: this is what was seen until then.")
    if 0 < steps < _FEW_STEPS:
        found.append(f"Only {steps} steps were seen: times are rough, and shares may be others.")
    if words := crowded(capture.settings.get("used")):
        found.append(f"O{words[1:]}: times to rely on need a run alone.")
    slowed = sum(seen["slowed"] * 1e-6 for seen in replays(case, "device"))
    share = slowed / (steps * case.step_ms) if steps else 0.0
    if share >= _SLOWED_BY_HEAT:
        found.append(
            f"For {min(1.0, share):.0%} of the time heat held the device's clocks down: cool it,"
            " or lower its power limit, which keeps clocks steady."
        )
    return found


def _verdict(case: Case, findings: list[Finding]) -> str:
    attribution = case.attribution
    if not attribution.steps:
        how = _UNSEEN.get(case.capture.ended, "ended")
        return (
            "No training step was seen: the script "
            f"{how} before its second batch from a DataLoader or second step of an optimizer."
        )
    share = {part: ms / attribution.step_ms for part, ms in attribution.parts.items()}
    worst = max(findings, key=lambda finding: finding.cost_ms, default=None)
    step = f"A step takes {attribution.step_ms:.1f} ms"
    waits = share.get(LOADING, 0.0)
    is_largest = worst is None or worst.cost_ms <= _ABOUT * waits * attribution.step_ms
    if waits >= _LOUD and is_largest:
        return f"{step}; for {share[LOADING]:.0%} of that time the model waits for data."
    if worst is not None and worst.cost_ms / attribution.step_ms >= _LOUD:
        most = max(worst.cost_ms, worst.gain.high_ms if worst.gain else 0.0)
        saved = most / attribution.step_ms
        return f"{step}; mending {worst.rule} would save up to {min(1.0, saved):.0%} of it."
    if share.get(UNATTRIBUTED, 0.0) >= 0.25:
        return (
            f"{step}; {share[UNATTRIBUTED]:.0%} of it goes to the script's own code, outside of"
            " model, optimizer and loading."
        )
    busiest = max(
        (p for p in share if p != UNATTRIBUTED), key=lambda p: share[p], default=UNATTRIBUTED
    )
    named = f"the {busiest} pass" if busiest in ("forward", "backward") else busiest
    return f"{step}, most of it in {named}; nothing large holds it up."
