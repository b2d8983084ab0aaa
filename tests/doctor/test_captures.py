"""What the rules say of the recorded scripts: the cause first and where it is; nothing of healthy
ones.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.doctor.record_scripts import report_of
from tests.doctor.scripts import CAPTURES, all_scripts, names_line, truth_of, twin_of

_CLOSE = 0.15
# A twin was recorded a little later, while the machine was busy with other things, too: as much as
# its steps differ among themselves they may differ from those of the other.
_CLOSE_TO_TWIN = 0.25
_SPREADS = 3
_LOWER_BOUNDS = ("cold-reads",)  # the kernel's own work for a read is not counted
# What they cost lies between epochs, and so outside of steps.
_BETWEEN_EPOCHS = ("workers-restarted", "loader-recreated", "slow-worker-start", "too-many-workers")
_OTHER_BATCHES = ("small-batch",)  # a step of the twin does more


def recorded(kind: str) -> list[Path]:
    return [
        path
        for path in all_scripts()
        if path.stem.endswith(kind) and (CAPTURES / f"{path.stem}.json.gz").exists()
    ]


def true_cost(script: Path, sick: dict[str, Any]) -> float | None:
    """As the script states it, else what its recorded step takes beyond that of its twin."""
    truth = truth_of(script)
    if truth.cost_ms is not None or truth.rule in (*_BETWEEN_EPOCHS, *_OTHER_BATCHES):
        return truth.cost_ms
    return float(sick["step_ms"] - report_of(twin_of(script).stem)["step_ms"])


@pytest.mark.parametrize("script", recorded("_sick"), ids=lambda script: script.stem)
def test_a_sick_script_gets_its_cause_first(script: Path) -> None:
    truth, report = truth_of(script), report_of(script.stem)
    assert [finding["rule"] for finding in report["findings"]][:1] == [truth.rule]
    first = report["findings"][0]
    if truth.at is not None:
        assert names_line(script, first["where"], truth.at), first["where"]
    wanted = true_cost(script, report)
    if wanted is None:
        return
    off = 0.5 + _CLOSE * wanted
    if truth.cost_ms is None:
        spread = spread_ms(report) + spread_ms(report_of(twin_of(script).stem))
        off = max(_CLOSE_TO_TWIN * wanted, _SPREADS * spread)
    assert first["cost_ms"] <= wanted + off
    assert truth.rule in _LOWER_BOUNDS or first["cost_ms"] >= wanted - off


def test_a_gpu_that_wants_for_pictures_does_not_idle_because_a_loss_is_read() -> None:
    """Recorded on an H200: `examples/slow_train.py` calls `.item()` in every step."""
    rules = [finding["rule"] for finding in report_of("slow_train_on_a_gpu")["findings"]]
    assert rules[0] == "no-workers"
    assert "sync-each-step" not in rules


def spread_ms(report: dict[str, Any]) -> float:
    return float(report["steps"]["high_ms"] - report["steps"]["low_ms"]) / 2


@pytest.mark.parametrize("script", recorded("_healthy"), ids=lambda script: script.stem)
def test_a_healthy_script_gets_no_finding(script: Path) -> None:
    assert report_of(script.stem)["findings"] == []
