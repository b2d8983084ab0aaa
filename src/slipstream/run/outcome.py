"""How a run went: what is printed at its end and written with --report."""

from dataclasses import dataclass, field
from typing import Any, Literal

from slipstream.run.fix import Situation
from slipstream.run.speed import Speed

SCHEMA = "slipstream.run/1"
ROUGH = "times are rough"  # ends a warning
State = Literal["applied", "skipped", "undone"]


@dataclass
class FixOutcome:
    """Of one fix: what became of it, and why; `notes` are what it did."""

    name: str
    kind: str
    state: State
    why: str
    notes: list[str] = field(default_factory=list)

    def hear(self, situation: Situation) -> None:
        """What it said while the script ran."""
        self.notes = situation.notes.get(self.name, [])
        if self.name in situation.failures:
            self.state, self.why = "undone", situation.failures[self.name]
        elif self.state == "applied" and situation.did_nothing(self.name):
            self.state, self.why, self.notes = "skipped", "; ".join(self.notes), []


@dataclass
class Outcome:
    """Of a whole run. `checked` says what was compared, and `speed` is that of the trials; the run
    itself made `steps`, and `steps_per_s`. `next` is what to type now, and `next_why` what for.
    `situation` is what the fixes were chosen by, `rank` the one that speaks, and `others` what
    other ranks say that went otherwise. Trials took `tried_s`; `missed` are fixes that they had,
    and not the run. `is_dry`: there was none, and what is "applied" is what has passed.
    """

    script: str
    fixes: list[FixOutcome]
    checked: str
    speed: Speed | None = None
    steps_per_s: float | None = None
    steps: int | None = None
    ceiling_per_s: float | None = None
    warnings: list[str] = field(default_factory=list)
    exit_code: int = 0
    was_interrupted: bool = False
    next: str | None = None
    next_why: str = ""
    situation: Situation | None = None
    rank: int = 0
    others: list[str] = field(default_factory=list)
    tried_s: float = 0.0
    missed: list[str] = field(default_factory=list)
    is_dry: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        speed = self.speed
        return {
            "schema": SCHEMA,
            "script": self.script,
            "fixes": [
                {
                    "fix": fix.name,
                    "class": fix.kind,
                    "state": fix.state,
                    "why": fix.why,
                    "notes": fix.notes,
                }
                for fix in self.fixes
            ],
            "checked": self.checked,
            "before_per_s": speed and speed.before,
            "after_per_s": speed and speed.after,
            "missed": self.missed,
            "ratio": speed and {"value": speed.ratio, "low": speed.low, "high": speed.high},
            "run_per_s": self.steps_per_s,
            "tried_s": round(self.tried_s, 1),
            "ceiling_per_s": self.ceiling_per_s,
            "warnings": self.warnings,
            "ranks": self.others,
            "next": self.next,
            "next_why": self.next_why,
        }
