"""The scripts with a known truth, and how to run them under the doctor."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doctor.settings import place

SCRIPTS = Path(__file__).parent.parent / "scripts"
CAPTURES = Path(__file__).parent / "captures"
_HEADER = re.compile(r'# truth: rule=(?P<rule>\S+) cost_ms=(?P<cost>\S+)(?: at="(?P<at>.*)")?')
_TIMEOUT_S = 120


@dataclass(frozen=True)
class Truth:
    """What is wrong with a script: `rule` is None for one that is healthy, `cost_ms` where only a
    measurement can tell, and `at` is text of the line that the finding has to name. `under` is the
    setting that it has to run in: see settings.py.
    """

    rule: str | None
    cost_ms: float | None = None
    at: str | None = None
    under: str | None = None


def all_scripts() -> list[Path]:
    """Those with a truth in their first line."""
    return [path for path in sorted(SCRIPTS.glob("*.py")) if _first(path).startswith("# truth:")]


def _first(path: Path) -> str:
    return path.read_text().partition("\n")[0]


def truth_of(path: Path) -> Truth:
    """What its first line says."""
    line, second, *_ = path.read_text().split("\n", 2)
    _, named, under = second.partition("# under: ")
    setting = under.strip() if named else None
    if line.strip() == "# truth: none":
        return Truth(None, under=setting)
    found = _HEADER.match(line)
    assert found is not None, f"{path.name}: {line!r} is no truth"
    cost = found["cost"]
    return Truth(found["rule"], None if cost == "measured" else float(cost), found["at"], setting)


def twin_of(path: Path) -> Path:
    """The healthy script to a sick one."""
    return path.with_name(path.name.replace("_sick", "_healthy"))


def names_line(path: Path, where: str | None, text: str) -> bool:
    """Whether `where` is a line of the script that has this text."""
    if where is None or ":" not in where:
        return False
    file, _, number = where.rpartition(":")
    if Path(file).name == "training.py":
        file = str(SCRIPTS / "training.py")
    lines = (SCRIPTS / Path(file).name).read_text().splitlines()
    return text in lines[int(number) - 1]


def run_doctor(path: Path, folder: Path) -> tuple[dict[str, Any], Path]:
    """Its report, and where its recording is."""
    import json

    report, capture = folder / "report.json", folder / "capture.json"
    _run(
        [
            "-m", "slipstream", "doctor", "--json", str(report), "--html",
            str(folder / "report.html"), "--capture", str(capture), str(path),
        ],
        truth_of(path).under,
    )  # fmt: skip
    return json.loads(report.read_text()), capture


def measured_step_ms(path: Path, times: int = 2, *, with_start: bool = False) -> float:
    """What a step of it takes without the doctor: the best of some runs."""
    what = "WHOLE_MS" if with_start else "STEP_MS"
    found = []
    for _ in range(times):
        output = _run([str(path)], truth_of(path).under)
        found.append(float(output.rpartition(f"{what}=")[2].split()[0]))
    return min(found)


def _run(arguments: list[str], under: str | None = None) -> str:
    with place(under) as found:
        process = subprocess.Popen(
            [*found.before, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=SCRIPTS, env={**os.environ, **found.environment},
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=_TIMEOUT_S)
        finally:
            if process.poll() is None:
                process.terminate()  # torchrun ends its ranks then
                process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0, errors[-2000:]
    return output
