"""A ratio that was measured, and what it should be."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Claim:
    """`value` is a ratio unless `unit` says otherwise; `target` is its limit, or None."""

    what: str
    value: float | None
    numbers: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none, or nothing was measured."""
        if self.value is None or (self.at_least is None and self.at_most is None):
            return None
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def shown_value(self) -> str:
        """The value with its unit."""
        return "-" if self.value is None else f"{self.value:.2f} {self.unit}"

    @property
    def shown_target(self) -> str:
        """The limit with its sign."""
        if self.at_least is not None:
            return f">= {self.at_least:g} {self.unit}"
        return "" if self.at_most is None else f"<= {self.at_most:g} {self.unit}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "met": self.met}


def show_claims(claims: Sequence[Claim], title: str) -> None:
    """As a table, beside their targets."""
    table = Table(title=title)
    for name in ("value", "target", "met", "what", "numbers"):
        table.add_column(name, justify="right" if name in ("value", "target") else "left")
    for claim in claims:
        met = "" if claim.met is None else "yes" if claim.met else "no"
        table.add_row(claim.shown_value, claim.shown_target, met, claim.what, claim.numbers)
    Console(width=150).print(table)
