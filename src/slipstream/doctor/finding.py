"""What a rule says: one cause, where it is, what it costs, what to do."""

from dataclasses import dataclass, field
from typing import Literal

# E: results stay the same, bit for bit. N: the same maths, other rounding or random numbers.
# S: what is computed changes; only ever suggested.
FixClass = Literal["E", "N", "S"]


@dataclass(frozen=True)
class Gain:
    """Milliseconds of a step that go away: measured, or bounded by what was measured."""

    low_ms: float
    high_ms: float
    how: Literal["measured", "bounded", "simulated"] = "bounded"


@dataclass(frozen=True)
class Finding:
    """One cause. `rule` is a kebab-case noun of it, and the name of its page in docs/rules."""

    rule: str
    title: str  # one sentence: what is wrong, with its numbers
    where: str | None  # file:line of the user's code
    cost_ms: float  # exposed milliseconds of a step
    fix: str  # one sentence: what to do
    fix_class: FixClass
    gain: Gain | None = None
    # Whether `slipstream run` has something against it here.
    has_cure: bool = True
    # Further places, the first ones.
    places: tuple[str, ...] = ()
    # Findings that this one explains: they are shown beneath it, their cost is part of its.
    notes: tuple[str, ...] = field(default=())
