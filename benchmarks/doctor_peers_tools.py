"""The doctor and its peers: how each is run on a script, and what it said."""

import json
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks.doctor_peers_cases import HELPER, Case
from benchmarks.doctor_peers_traced import write_traced
from tests.doctor.scripts import SCRIPTS

PEERS = Path("build/doctor-peers").absolute()
_PACKAGES = ("py-spy", "traceml-ai")
_ENTRIES = 3
_TIMEOUT_S = 180
_PROFILED_WHOLE = ("no_workers", "slow_transform", "for_loop_optimizer", "eval_with_grad")

Line = tuple[str, int]


@dataclass
class Said:
    """What a tool said of a script."""

    lines: list[Line] = field(default_factory=list)  # its first entries of the user's own code
    sentence: str | None = None  # its verdict in words
    cause: str | None = None  # the rule, or the kind of trouble
    cost_ms: float | None = None
    step_ms: float | None = None  # what the script's own clock said meanwhile
    note: str | None = None


def install_peers() -> dict[str, str]:
    """An environment of their own, which sees the torch of this one; their versions."""
    if not (PEERS / "bin" / "traceml").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
        (folder,) = PEERS.glob("lib/python*/site-packages")
        (folder / "torch_of_ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run([PEERS / "bin" / "pip", "install", "--quiet", *_PACKAGES], check=True)
    listed = _output([str(PEERS / "bin" / "pip"), "list", "--format=json"], PEERS)
    found = {package["name"]: package["version"] for package in json.loads(listed)}
    return {name: found[name] for name in _PACKAGES} | {
        name: version(name) for name in ("torch", "slipstream")
    }


def run_bare(path: Path) -> float:
    """What a step takes without any tool."""
    step_ms = _step_ms(_output([sys.executable, str(path)], SCRIPTS))
    assert step_ms is not None
    return step_ms


def run_doctor(case: Case, place: Path) -> Said:
    """`slipstream doctor script.py`."""
    command = [
        sys.executable, "-m", "slipstream", "doctor", "--json", str(place / "report.json"),
        "--html", str(place / "report.html"), "--full", str(case.path),
    ]  # fmt: skip
    step_ms = _step_ms(_output(command, SCRIPTS))
    findings = json.loads((place / "report.json").read_text())["findings"]
    named = [place for f in findings[:_ENTRIES] for place in (f["where"], *f["places"]) if place]
    said = Said(lines=_first(_line_of(n) for n in named if ":" in n), step_ms=step_ms)
    if findings:
        first = findings[0]
        said.sentence, said.cause, said.cost_ms = first["title"], first["rule"], first["cost_ms"]
    return said


def _line_of(where: str) -> Line:
    file, _, number = where.rpartition(":")
    return Path(file).name, int(number)


def run_profiler(case: Case, place: Path) -> Said:
    """torch.profiler with stacks, its table sorted by self CPU time; for some also the clock."""
    runner = Path(__file__).with_name("doctor_peers_profile.py")
    rows = place / "rows.json"
    _output([sys.executable, str(runner), str(rows), str(case.path)], SCRIPTS)
    timed = ""
    if case.name in _PROFILED_WHOLE:
        timed = _output([sys.executable, str(runner), "-", str(case.path)], SCRIPTS)
    frames = (_frame_of_row(row, case) for row in json.loads(rows.read_text()))
    return Said(lines=_first(frame for frame in frames if frame), step_ms=_step_ms(timed))


def _frame_of_row(row: list[str], case: Case) -> Line | None:
    """The innermost of the user's own; line 0 for the whole file, whose numbers are old there."""
    for frame in row:
        found = re.fullmatch(r"([\w.]+)\((\d+)\): (.+)", frame)
        if found and found[1] in (case.path.name, HELPER):
            return found[1], 0 if found[3] == "<module>" else int(found[2])
    return None


def run_py_spy(case: Case, place: Path) -> Said:
    """`py-spy record --subprocesses`; with `--idle` as well, should the place not be there."""
    said = _py_spy(case, place)
    if not set(said.lines) & case.right_lines():
        idle = _py_spy(case, place, "--idle")
        if set(idle.lines) & case.right_lines():
            said.lines, said.note = idle.lines, "with --idle only"
    return said


def _py_spy(case: Case, place: Path, *more: str) -> Said:
    file = place / "samples.txt"
    command = [
        str(PEERS / "bin" / "py-spy"), "record", "-f", "raw", "--subprocesses", "--rate", "100",
        "-o", str(file), *more, "--", str(PEERS / "bin" / "python"), str(case.path),
    ]  # fmt: skip
    step_ms = _step_ms(_output(command, SCRIPTS))
    counts: Counter[Line] = Counter()
    for sample in file.read_text().splitlines():
        stack, _, count = sample.rpartition(" ")
        line = line_of_stack(stack.split(";"), (case.path.name, HELPER))
        if line is not None:
            counts[line] += int(count)
    return Said(lines=[line for line, _ in counts.most_common(_ENTRIES)], step_ms=step_ms)


def line_of_stack(frames: list[str], files: tuple[str, ...]) -> Line | None:
    """The innermost line of these files. What imports is left out, and of a forked worker what
    its parent was doing.
    """
    if any("_find_and_load" in frame for frame in frames):
        return None
    if sum(frame.startswith("process ") for frame in frames) > 1:
        starts = [k for k, frame in enumerate(frames) if frame.startswith("_worker_loop ")]
        frames = frames[starts[-1] :] if starts else []
    for frame in reversed(frames):
        found = re.fullmatch(r".+ \((.+):(\d+)\)", frame)
        if found and found[1] in files:
            return found[1], int(found[2])
    return None


def run_traceml(case: Case, place: Path) -> Said:
    """`traceml run` on a copy of the script with its `trace_step` around the steps."""
    write_traced([case.path, SCRIPTS / HELPER], place)
    return run_traceml_on(place / case.path.name, place)


_COSTS = {
    "INPUT": ("input", "input_wait_ms"),
    "H2D": ("input", "h2d_ms"),
    "COMPUTE": ("compute", "compute_ms"),
    "RESIDUAL": ("residual", "residual_ms"),
}


def run_traceml_on(script: Path, place: Path) -> Said:
    """`traceml run script.py`."""
    command = [str(PEERS / "bin" / "traceml"), "run", "--logs-dir", str(place), "--run-name", "run"]
    step_ms = _step_ms(_output([*command, str(script)], place))
    diagnosis = json.loads((place / "run" / "final_summary.json").read_text())["primary_diagnosis"]
    said = Said(step_ms=step_ms, note=f"{diagnosis['status']}: {diagnosis['summary']}")
    for start, (cause, cost) in _COSTS.items():
        if diagnosis["kind"].startswith(start):
            said.sentence, said.cause = said.note, cause
            said.cost_ms = diagnosis["evidence"].get(cost)
    return said


def _first(lines: Iterable[Line]) -> list[Line]:
    return list(dict.fromkeys(lines))[:_ENTRIES]


def _output(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-1500:]}")
    return done.stdout


def _step_ms(output: str) -> float | None:
    found = re.search(r"STEP_MS=([\d.]+)", output)
    return float(found[1]) if found else None
