"""The doctor beside torch.profiler, py-spy and TraceML, on the same scripts, by one judge.

python -m benchmarks.doctor_peers [names...] [--save FILE]    Nothing else should run meanwhile.
The scripts are those of `tests/scripts`, each with one planted fault. The peers are installed to
`build/doctor-peers` at the first call.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.doctor_peers_cases import CASES, Case
from benchmarks.doctor_peers_tools import (
    Said,
    install_peers,
    run_bare,
    run_doctor,
    run_profiler,
    run_py_spy,
    run_traceml,
    run_traceml_on,
)
from benchmarks.machine import describe_machine
from tests.doctor.scripts import truth_of, twin_of

_CLOSE = 0.15
_TOOLS: dict[str, Callable[[Case, Path], Said]] = {
    "slipstream doctor": run_doctor,
    "torch.profiler": run_profiler,
    "py-spy": run_py_spy,
    "traceml-ai": run_traceml,  # a plain loop needs its calls; they are put into a copy
}


@dataclass(frozen=True)
class Judged:
    """How a tool did on a script; None where the question does not arise."""

    names_place: bool
    names_cause: bool
    is_right_cause: bool
    gives_cost: bool
    is_close: bool
    sees_worker: bool | None
    slowdown: float | None


def judge(case: Case, said: Said, truth_ms: float, bare_ms: float) -> Judged:
    """The same rule for all."""
    lines, in_worker = set(said.lines), case.worker_lines()
    close = said.cost_ms is not None and abs(said.cost_ms - truth_ms) <= _CLOSE * truth_ms
    return Judged(
        names_place=bool(lines & case.right_lines()),
        names_cause=said.sentence is not None,
        is_right_cause=said.cause in (case.rule, case.family),
        gives_cost=said.cost_ms is not None,
        is_close=close,
        sees_worker=bool(lines & in_worker) if in_worker else None,
        slowdown=said.step_ms / bare_ms if said.step_ms else None,
    )


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """One script under every tool."""
    truth_ms = truth_of(case.path).cost_ms
    sick = [run_bare(case.path) for _ in range(rounds)]
    if truth_ms is None:
        truth_ms = min(sick) - min(run_bare(twin_of(case.path)) for _ in range(rounds))
    bare_ms = statistics.median(sick)
    print(f"{case.name}: {truth_ms:.1f} of {bare_ms:.1f} ms a step", file=sys.stderr)
    tools = {}
    for name, run in _TOOLS.items():
        said, *others = [_in_a_folder(run, case) for _ in range(rounds)]
        if said.step_ms is not None:
            said.step_ms = statistics.median(s.step_ms or 0 for s in (said, *others))
        judged = judge(case, said, truth_ms, bare_ms)
        tools[name] = {"said": dataclasses.asdict(said), "judged": dataclasses.asdict(judged)}
        print(f"  {name}: {_in_words(said, judged)}", file=sys.stderr, flush=True)
    return {"script": case.name, "truth_ms": truth_ms, "step_ms": bare_ms, "tools": tools}


def _in_a_folder(run: Callable[[Case, Path], Said], case: Case) -> Said:
    with tempfile.TemporaryDirectory() as place:
        return run(case, Path(place))


def _in_words(said: Said, judged: Judged) -> str:
    lines = " ".join(f"{file}:{number}" for file, number in said.lines) or "no line"
    cost = f"{said.cost_ms:.1f} ms" if said.cost_ms is not None else "no cost"
    return f"{lines}; {said.cause or 'no cause'}; {cost}; x{judged.slowdown or 0:.2f}"


def unchanged_script() -> str:
    """What TraceML says of a plain loop without its calls."""
    with tempfile.TemporaryDirectory() as place:
        return run_traceml_on(CASES[0].path, Path(place)).note or ""


def table(rows: list[dict[str, Any]], unchanged: str) -> str:
    """Markdown: the sums, then every script."""
    head = (
        "| tool | names the line | names a cause | the right one | cost in ms a step"
        " | within 15 % | sees into workers | slowdown: median, worst |"
    )
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for name in _TOOLS:
        marks = [Judged(**row["tools"][name]["judged"]) for row in rows]
        of_workers = [m.sees_worker for m in marks if m.sees_worker is not None]
        slower = [m.slowdown for m in marks if m.slowdown]
        asked = [
            sum(getattr(m, question) for m in marks)
            for question in (
                "names_place", "names_cause", "is_right_cause", "gives_cost", "is_close",
            )
        ]  # fmt: skip
        lines.append(
            f"| {name} | "
            + " | ".join(f"{count} of {len(marks)}" for count in asked)
            + f" | {sum(of_workers)} of {len(of_workers)}"
            + f" | {statistics.median(slower):.2f}, {max(slower):.2f} |"
        )
    lines += ["", f"traceml-ai on a script without its calls: {unchanged}", ""]
    lines += ["| script | truth, ms a step | " + " | ".join(_TOOLS) + " |"]
    lines += ["|---|---|" + "---|" * len(_TOOLS)]
    for row in rows:
        cells = [_cell(row["tools"][name]) for name in _TOOLS]
        lines.append(f"| {row['script']} | {row['truth_ms']:.1f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(result: dict[str, Any]) -> str:
    said, judged = Said(**result["said"]), Judged(**result["judged"])
    parts = ["line" if judged.names_place else "-"]
    if said.cause:
        parts.append(said.cause if judged.is_right_cause else f"({said.cause})")
    if said.cost_ms is not None:
        parts.append(f"{said.cost_ms:.1f} ms")
    if judged.slowdown:
        parts.append(f"x{judged.slowdown:.2f}")
    return ", ".join(parts)


def main() -> None:
    """Print the table, and save what it is made from."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each; their median counts")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    versions = install_peers()
    began = time.perf_counter()
    cases = [case for case in CASES if not options.names or case.name in options.names]
    rows = [measure(case, options.rounds) for case in cases]
    unchanged = unchanged_script()
    print(table(rows, unchanged))
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    if options.save:
        result = {
            "machine": describe_machine(),
            "versions": versions,
            "rounds": options.rounds,
            "traceml-ai without its calls": unchanged,
            "scripts": rows,
        }
        options.save.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
