"""What trials have found, kept in a folder for the process that runs the script."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slipstream.run.fix import Situation
from slipstream.run.outcome import FixOutcome
from slipstream.run.situation import load_situation
from slipstream.run.speed import Speed
from slipstream.run.trace import Trace, trace_of

_FILE = "tried.json"


@dataclass
class Tried:
    """`names` are the fixes to apply; `expected` are runs that the real one must be like: without
    losses, where fixes may round differently. `left` are exact fixes that did nothing in trials.
    """

    seed: int
    fixes: list[FixOutcome] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    checked: str = "nothing was applied, so there was nothing to check"
    speed: Speed | None = None
    expected: list[Trace] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rank: int = 0
    seconds: float = 0.0
    left: dict[str, str] = field(default_factory=dict)

    def skip_left(self) -> None:
        """Where there is no run of its own, in which they may find something to do."""
        for outcome in self.fixes:
            if outcome.state == "applied" and outcome.name in self.left:
                outcome.state, outcome.why = "skipped", self.left[outcome.name]


def save_tried(tried: Tried, folder: Path) -> None:
    """Beside the diagnosis."""
    (folder / _FILE).write_text(json.dumps(asdict(tried)))


def load_tried(folder: Path) -> tuple[Tried, Situation]:
    """What was kept, and the diagnosis."""
    values = json.loads((folder / _FILE).read_text())
    values["fixes"] = [FixOutcome(**fix) for fix in values["fixes"]]
    values["speed"] = values["speed"] and Speed(**values["speed"])
    values["expected"] = [trace_of(trace) for trace in values["expected"]]
    return Tried(**values), load_situation(folder)
