"""What rules found, as plain data: measured rows, what they cost together, the whole report."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from slipstream.timing import Ratio

# gain: another form is surely faster. none: measured, and it is not. small: too little of the time
# to matter. unmeasured: there was no time, or it failed.
RowState = Literal["gain", "none", "small", "unmeasured"]
# finding: costs time that could be saved. nothing: looked at, nothing to gain. absent: there is
# no such thing in the model. unmeasured: could not be told.
State = Literal["finding", "nothing", "absent", "unmeasured"]


@dataclass(frozen=True)
class Other:
    """What could stand in the place of something, and what it takes. `speed` is how many times
    faster one of it is.
    """

    what: str
    ms: float
    flops: int
    speed: Ratio


@dataclass
class Row:
    """Equal things, measured once. `where` has the names of the modules of each of them, `source`
    the line of the class that has the first. Gains are of all of them in one call of the model.
    """

    what: str
    where: Sequence[Sequence[str]] = ()
    source: str | None = None
    count: int = 1
    state: RowState = "none"
    why: str = ""
    now_ms: float | None = None
    flops: int | None = None
    others: list[Other] = field(default_factory=list)
    best: str | None = None
    gain_ms: float = 0.0
    gain_low_ms: float = 0.0
    gain_high_ms: float = 0.0


@dataclass
class Checked:
    """One rule's outcome. `gain_ms` is what would be saved in one call of the model, `share` that
    part of the call; both are None where no time was measured.
    """

    rule: str
    state: State
    says: str
    do: str = ""
    gain_ms: float | None = None
    gain_low_ms: float | None = None
    gain_high_ms: float | None = None
    share: float | None = None
    rows: list[Row] = field(default_factory=list)


@dataclass
class Report:
    """What `lint_model` found. `str(report)` is for a terminal of 80 columns."""

    model: str
    device: str
    inputs: str
    model_ms: float
    operators: int
    gflops: float
    seconds: float
    checked: list[Checked]

    @property
    def findings(self) -> list[Checked]:
        """The most expensive first; those without a time last."""
        found = [each for each in self.checked if each.state == "finding"]
        return sorted(found, key=lambda each: -(each.gain_ms or 0.0))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        rest = {name: value for name, value in asdict(self).items() if name != "checked"}
        return {
            **rest,
            "findings": [each.rule for each in self.findings],
            "checked": [asdict(each) for each in self.checked],
        }

    def __str__(self) -> str:
        from slipstream.infer.lint.text import report_text

        return report_text(self)
