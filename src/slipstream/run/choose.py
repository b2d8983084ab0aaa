"""Which fixes a run takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.errors import UsageError
from slipstream.run.apply import FIXES
from slipstream.run.fix import Fix, Situation

ALLOWED = {"exact": ("E",), "numeric": ("E", "N")}


@dataclass(frozen=True)
class Wish:
    """What the user asked for: classes, and names of fixes, or of rules that they cure, to take
    alone or to leave out.
    """

    allow: str = "exact"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


def check_wish(wish: Wish) -> None:
    """Raises `UsageError` for what there is not."""
    if wish.allow not in ALLOWED:
        raise UsageError(f"--allow is exact or numeric, got {wish.allow!r}.")
    for name in (*wish.only, *wish.skip):
        if not any(_is_named(fix, (name,)) for fix in FIXES):
            known = ", ".join(fix.name for fix in FIXES)
            raise UsageError(f"There is no fix {name!r}. There are: {known}.")


def choose(
    situation: Situation, wish: Wish, fixes: Sequence[Fix] = FIXES
) -> list[tuple[Fix, bool, str]]:
    """Every fix: whether it is taken, and why or why not."""
    return [(fix, *_decide(fix, situation, wish)) for fix in fixes]


def _decide(fix: Fix, situation: Situation, wish: Wish) -> tuple[bool, str]:
    if wish.only and not _is_named(fix, wish.only):
        return False, "not among --only"
    if _is_named(fix, wish.skip):
        return False, "left out by --skip"
    try:
        helps, why = fix.applies(situation)
    except Exception as error:
        return False, f"could not tell whether it helps ({type(error).__name__}: {error})"
    if helps and fix.kind not in ALLOWED[wish.allow]:
        return False, f"{why}; may round differently: --allow numeric"
    return helps, why


def _is_named(fix: Fix, names: Sequence[str]) -> bool:
    return fix.name in names or any(rule in names for rule in fix.cures)
