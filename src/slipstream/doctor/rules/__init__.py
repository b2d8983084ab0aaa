"""One file for each cause: a pure function of a `Case`, with a page, docs/rules/NAME.md."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case

_MODULES = (
    "no_workers",
    "too_few_workers",
)


@dataclass(frozen=True)
class Rule:
    """`healthy` is said where it finds nothing."""

    name: str
    healthy: str
    find: Callable[[Case], list[Finding]]


def all_rules() -> tuple[Rule, ...]:
    """Every rule there is."""
    modules = (import_module(f"{__name__}.{name}") for name in _MODULES)
    return tuple(Rule(module.NAME, module.HEALTHY, module.find) for module in modules)
