"""The scripts for a GPU, as far as a machine without one can tell."""

import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.doctor.rules import all_rules
from tests.doctor import scripts
from tests.doctor.score_gpu import SCRIPTS

_SICK = sorted(SCRIPTS.glob("*_sick.py"))


def test_there_are_scripts() -> None:
    assert len(_SICK) >= 20


@pytest.mark.parametrize("path", _SICK, ids=lambda path: path.stem)
def test_a_sick_script_says_what_is_wrong_and_has_a_twin(path: Path) -> None:
    truth = scripts.truth_of(path)
    assert truth.rule in {rule.name for rule in all_rules()}
    lines = path.read_text().splitlines()[1:]
    assert truth.at is None or any(truth.at in line for line in lines)
    twin = scripts.twin_of(path)
    assert scripts.truth_of(twin).rule is None
    for script in (path, twin):
        compile(script.read_text(), script.name, "exec")


@pytest.mark.parametrize("name", ["copy_on_critical_path_healthy", "allocator_thrash_sick"])
def test_a_script_runs_without_a_gpu(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPTS / f"{name}.py")],
        check=True, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "STEP_MS=" in done.stdout
