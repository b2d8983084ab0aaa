"""`faster`: exact fixes of `slipstream run` for a block of code, such as a cell of a notebook."""

import warnings
from collections.abc import Sequence
from io import StringIO
from types import TracebackType
from typing import TYPE_CHECKING

from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.run.fix import Fix, Undo
    from slipstream.run.outcome import Outcome

# A process has to be started with it, and it has to be worth it, which only a trial can tell.
_NOT_UNASKED = ("kept-memory", "parallel-loading", "foreach-optimizer")
_CHECKED = "nothing was tried or compared here: slipstream run does that with whole scripts"


class faster:
    """Put the exact fixes in place for what runs inside, and take them away behind it.

    Nothing is tried first, so nothing is known of what they bring: a fix looks at each call by
    itself and leaves alone what it cannot do exactly. `names` are those to take; without them, all
    that can do no harm unmeasured. One that fails is off, with a warning.

    >>> import slipstream
    >>> with slipstream.faster() as speed:
    ...     pass  # train()
    >>> speed.outcome.checked.partition(":")[0]
    'nothing was tried or compared here'
    """

    def __init__(self, *names: str) -> None:
        """Raises `UsageError` for names that are no exact fixes."""
        self._fixes = _chosen(names)
        self._undo: dict[str, Undo] = {}
        self.outcome: Outcome | None = None

    def __enter__(self) -> "faster":
        """From here on."""
        from slipstream.run.apply import apply_all
        from slipstream.run.follow import Follower
        from slipstream.run.speed_up import in_place, unknown_script

        if self._undo:
            raise UsageError("This block is open already: make another with slipstream.faster().")
        self._situation = unknown_script()
        wanted = [fix.name for fix in self._fixes if fix.name not in in_place]
        self._undo = apply_all(wanted, self._situation)
        in_place.update(self._undo)
        self._follower = Follower()
        self._follower.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        """Up to here; raises what a fix could not finish, such as a file that was not written."""
        from slipstream.run.speed_up import in_place

        self._follower.stop()
        failures = []
        own = list(self._undo)
        while self._undo:
            name, undo = self._undo.popitem()
            in_place.pop(name, None)
            try:
                undo()
            except Exception as failure:
                failures.append(failure)
        self.outcome = self._outcome(own)
        if failures and error is None:
            raise failures[0]
        for unfinished in failures:
            warnings.warn(f"slipstream: {unfinished}", stacklevel=2)

    def _outcome(self, own: Sequence[str]) -> "Outcome":
        from slipstream.run.idle import idle
        from slipstream.run.outcome import FixOutcome, Outcome

        known = self._situation
        fixes = []
        unused = dict(idle([name for name in own if name not in known.failures], known))
        for fix in self._fixes:
            if fix.name in unused:
                fixes.append(FixOutcome(fix.name, fix.kind, "skipped", unused[fix.name]))
            elif fix.name in own:
                fixes.append(FixOutcome(fix.name, fix.kind, "applied", fix.what))
                fixes[-1].hear(known)
            else:
                fixes.append(FixOutcome(fix.name, fix.kind, "skipped", "in place already"))
        return Outcome(
            script="with slipstream.faster()", fixes=fixes, checked=_CHECKED, situation=known,
            steps_per_s=self._follower.per_s,
        )  # fmt: skip

    def __str__(self) -> str:
        """The table of fixes, once the block is over."""
        from rich.console import Console

        from slipstream.run.text import print_outcome

        if self.outcome is None:
            return "slipstream.faster(): the block is not over yet"
        text = StringIO()
        print_outcome(self.outcome, Console(file=text, width=100, highlight=False))
        return text.getvalue().strip("\n")


def _chosen(names: Sequence[str]) -> "list[Fix]":
    from slipstream.run.apply import FIXES

    exact = [fix for fix in FIXES if fix.kind == "E" and fix.name != "kept-memory"]
    unknown = [name for name in names if name not in {fix.name for fix in exact}]
    if unknown:
        known = ", ".join(fix.name for fix in exact)
        raise UsageError(f"faster cannot do {', '.join(map(repr, unknown))}; it can: {known}.")
    if names:
        return [fix for fix in exact if fix.name in names]
    return [fix for fix in exact if fix.name not in _NOT_UNASKED]
