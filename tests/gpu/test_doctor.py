"""The doctor's rules about devices, on scripts with a planted fault."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.doctor import scripts
from tests.doctor.score_gpu import SCRIPTS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
_SICK = sorted(SCRIPTS.glob("*_sick.py"))


@pytest.fixture(autouse=True)
def _gpu_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "SCRIPTS", SCRIPTS)


def findings(path: Path, folder: Path) -> dict[str, dict[str, Any]]:
    report, _ = scripts.run_doctor(path, folder)
    assert report["clock"] == "device"
    assert sum(report["parts"].values()) == pytest.approx(report["step_ms"])
    return {finding["rule"]: finding for finding in reversed(report["findings"])}


@pytest.mark.parametrize("path", _SICK, ids=lambda path: path.stem)
def test_a_fault_is_found_where_it_is_and_gone_without_it(path: Path, tmp_path: Path) -> None:
    truth = scripts.truth_of(path)
    assert truth.rule is not None
    found = findings(path, tmp_path)
    assert truth.rule in found, sorted(found)
    if truth.at is not None:
        assert scripts.names_line(path, found[truth.rule]["where"], truth.at)
    assert truth.rule not in findings(scripts.twin_of(path), tmp_path)
