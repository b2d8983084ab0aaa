"""How good the doctor is: `python -m tests.doctor.score [names…]` runs the scripts live.

Truths that a script cannot state are measured: what its step takes, without the doctor, beyond that
of its healthy twin.
"""

import sys
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

_CLOSE = 0.15


@dataclass
class Score:
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
        cost = measured_step_ms(path) - measured_step_ms(twin_of(path))
    findings = [(f["rule"], f["cost_ms"], f["where"]) for f in report["findings"]]
    return Score(path.stem, truth.rule, findings, cost, truth.at)


def main(names: list[str]) -> None:
    scores = []
    for path in all_scripts():
        if names and not any(name in path.stem for name in names):
            continue
        scores.append(score(path))
        print(scores[-1].line(path), flush=True)
    sick = [s for s in scores if s.rule]
    count = max(1, len(sick))
    print(
        f"{len(sick)} sick: found {sum(s.is_found for s in sick) / count:.0%}, right cause first"
        f" {sum(s.is_first for s in sick) / count:.0%}, cost within 15 %"
        f" {sum(s.is_close for s in sick) / count:.0%}; {len(scores) - len(sick)} healthy:"
        f" {sum(not s.is_found for s in scores if not s.rule)} false alarms"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
