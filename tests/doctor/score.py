"""How good the doctor is: `python -m tests.doctor.score [names…] [--save docs/score.md]`.

Runs the scripts live. Truths that a script cannot state are measured: what its step takes, without
the doctor, beyond that of its healthy twin. Nothing else should run on the machine meanwhile.
"""

import argparse
import os
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.doctor.scripts import (
    all_scripts,
    measured_step_ms,
    names_line,
    run_doctor,
    truth_of,
    twin_of,
)
from tests.doctor.settings import Unavailable

_CLOSE = 0.15
_AT_START = ("slow-worker-start",)  # their cost lies before the first batch


@dataclass
class Score:
    """Of one script."""

    name: str
    rule: str | None
    findings: list[tuple[str, float, str | None]]
    truth_ms: float | None
    at: str | None

    @property
    def cost_ms(self) -> float | None:
        return next((cost for rule, cost, _ in self.findings if rule == self.rule), None)

    @property
    def is_found(self) -> bool:
        return self.cost_ms is not None if self.rule else not self.findings

    @property
    def is_first(self) -> bool:
        return bool(self.findings) and self.findings[0][0] == self.rule

    @property
    def is_close(self) -> bool:
        if self.cost_ms is None or self.truth_ms is None:
            return False
        return abs(self.cost_ms - self.truth_ms) <= _CLOSE * self.truth_ms

    def line(self, path: Path) -> str:
        shown = ", ".join(f"{rule} {cost:.1f}" for rule, cost, _ in self.findings[:4]) or "-"
        if self.rule is None:
            return f"{self.name:34} {'clean' if self.is_found else 'FALSE ALARM':12} {shown}"
        where = next((w for rule, _, w in self.findings if rule == self.rule), None)
        there = self.at is None or names_line(path, where, self.at)
        said = [
            "found" if self.is_found else "MISSED",
            "first" if self.is_first else "NOT FIRST",
            f"{self.cost_ms or 0:6.1f} of {self.truth_ms or 0:6.1f} ms",
            "close" if self.is_close else "OFF",
            "there" if there else f"WHERE {where}",
        ]
        return f"{self.name:34} {'  '.join(said)}  [{shown}]"


def score(path: Path) -> Score:
    """Run one script."""
    truth = truth_of(path)
    with tempfile.TemporaryDirectory() as folder:
        report, _ = run_doctor(path, Path(folder))
    cost = truth.cost_ms
    if truth.rule is not None and cost is None:
        at_start = truth.rule in _AT_START
        sick, healthy = (measured_step_ms(p, with_start=at_start) for p in (path, twin_of(path)))
        cost = sick - healthy
    findings = [(f["rule"], f["cost_ms"], f["where"]) for f in report["findings"]]
    return Score(path.stem, truth.rule, findings, cost, truth.at)


def summary(scores: list[Score]) -> str:
    """One line."""
    sick = [s for s in scores if s.rule]
    alarms = sum(not s.is_found for s in scores if not s.rule)
    return (
        f"{len(sick)} sick scripts: {sum(s.is_found for s in sick)} found,"
        f" {sum(s.is_first for s in sick)} with the right cause first,"
        f" {sum(s.is_close for s in sick)} with a cost within 15 % of the truth;"
        f" {len(scores) - len(sick)} healthy scripts: {alarms} false alarms"
    )


def as_markdown(scores: list[Score], not_run: list[str]) -> str:
    """The page of the documentation."""
    import torch

    rows = [
        f"| {s.name.removesuffix('_sick')} | `{s.rule}` | {'yes' if s.is_found else '**no**'} |"
        f" {'yes' if s.is_first else '**no**'} | {s.cost_ms or 0:.1f} | {s.truth_ms or 0:.1f} |"
        f" {'yes' if s.is_close else 'no'} |"
        for s in scores
        if s.rule
    ]
    alarms = [
        f"- {s.name}: {', '.join(rule for rule, _, _ in s.findings)}"
        for s in scores
        if not s.rule and not s.is_found
    ]
    return "\n".join(
        [
            "# Score of the doctor",
            "",
            (
                "Scripts with a planted fault, run under `slipstream doctor` as a user would, each"
                " against a healthy twin. The truth is what the script says it is, or what its step"
                " takes without the doctor beyond that of its twin (best of two runs). Scripts that"
                " need a certain machine run on the real thing: two ranks, a control group with a"
                " quota or little memory and swap, a small /dev/shm, files on a server. Printed by"
                " `python -m tests.doctor.score --save docs/score.md`."
            ),
            "",
            (
                f"{summary(scores)}. Machine: {platform.machine()}, {len(os.sched_getaffinity(0))}"
                f" cores, Python {platform.python_version()}, torch {torch.__version__}."
            ),
            "",
            "| script | rule | found | first | cost, ms a step | truth | within 15 % |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            "False alarms on healthy scripts:" if alarms else "No false alarm on a healthy script.",
            *alarms,
            "",
            *(["Not run here:", *(f"- {words}" for words in not_run), ""] if not_run else []),
        ]
    )


def score_all(names: list[str]) -> tuple[list[Score], list[str]]:
    """Of all scripts, or of those with one of these names; printed as they come. And which could
    not be run, and why.
    """
    scores, not_run = [], []
    for path in all_scripts():
        if names and not any(name in path.stem for name in names):
            continue
        try:
            scores.append(score(path))
        except Unavailable as why:
            not_run.append(f"{path.stem}: {why}")
            print(f"{path.stem:34} not run: {why}", flush=True)
            continue
        print(scores[-1].line(path), flush=True)
    print(summary(scores))
    return scores, not_run


def main() -> None:
    """Print the table, and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    scores, not_run = score_all(options.names)
    if options.save:
        options.save.write_text(as_markdown(scores, not_run))


if __name__ == "__main__":
    main()
