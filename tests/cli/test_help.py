"""`--help` of the commands about scripts says what one has to know before the first run."""

import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.cli import doctor as module
from tests.conftest import Run


def test_doctor_says_what_it_takes_when_it_stops_and_where_its_report_goes(run_cli: Run) -> None:
    said = " ".join(run_cli("doctor", "--help").stdout.split())
    assert "doctor [OPTIONS] [SCRIPT [ARGS]...]" in said
    assert f"stopped when {module._STEPS} steps or {module._SECONDS:.0f} seconds" in said
    assert "Standard output stays the script's own" in said
    assert "standard error, and to report.html and report.json" in said
    assert "slipstream doctor -m package.train --epochs 3" in said


def test_compare_shows_how_to_make_what_it_compares(run_cli: Run) -> None:
    said = " ".join(run_cli("compare", "--help").stdout.split())
    assert "slipstream doctor --json before.json train.py" in said
    assert "slipstream compare --check --tolerance 10% before.json after.json" in said


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (["--steps", "3", "show.py", "--steps", "4", "-m", "x"], ["--steps", "4", "-m", "x"]),
        (["show.py", "--", "--help", "-h"], ["--", "--help", "-h"]),
        (["-m", "show", "--json", "y"], ["--json", "y"]),
    ],
)
def test_what_stands_behind_the_script_is_the_scripts(
    given: list[str], seen: list[str], tmp_path: Path
) -> None:
    (tmp_path / "show.py").write_text("import sys\nprint(sys.argv[1:])\n")
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", "doctor", *given], cwd=tmp_path, check=False,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == f"{seen}\n", done.stderr
    assert "No training step was seen" in done.stderr


def test_run_says_what_it_takes(run_cli: Run) -> None:
    said = " ".join(run_cli("run", "--help").stdout.split())
    assert "run [OPTIONS] [SCRIPT [ARGS]...]" in said
    assert "slipstream run --diff train.py ARGS > fast.patch" in said


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (["--skip", "tf32", "show.py", "--skip", "4", "-m", "x"], ["--skip", "4", "-m", "x"]),
        (["show.py", "--", "--help", "-h"], ["--", "--help", "-h"]),
        (["-m", "show", "--allow", "y"], ["--allow", "y"]),
    ],
)
def test_what_stands_behind_the_script_is_the_scripts_in_a_run(
    given: list[str], seen: list[str], tmp_path: Path
) -> None:
    (tmp_path / "show.py").write_text("import sys\nprint(sys.argv[1:])\n")
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", "run", *given], cwd=tmp_path, check=False,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == f"{seen}\n", done.stderr
    assert not done.returncode
