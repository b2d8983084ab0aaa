"""What a fix is, and what it may know."""

import contextlib
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipstream.doctor.finding import FixClass

Undo = Callable[[], None]


def warn(line: str) -> None:
    """In the middle of the script, which does not fail of it where it makes errors of warnings."""
    try:
        warnings.warn(f"slipstream: {line}", stacklevel=3)
    except Exception:
        with contextlib.suppress(Exception):
            sys.stderr.write(f"slipstream: {line}\n")


class Say(Protocol):
    """Tells the table of fixes of one loader or model; `left` as for `Situation.note`."""

    def __call__(self, line: str, *, left: bool = False) -> None:
        """Said once."""


@dataclass
class Situation:
    """What is known of a script when fixes are chosen: the doctor's report and recording of it.

    While the script runs, fixes write into `notes` what they did to what: {fix: [line, …]}, and
    into `failures` what made them give up. Those `notes` that say what was not done are in `left`.
    `in_place` are fixes that were applied.
    """

    report: dict[str, Any]
    capture: Any  # slipstream.doctor.capture.Capture
    notes: dict[str, list[str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    left: dict[str, set[str]] = field(default_factory=dict)
    in_place: set[str] = field(default_factory=set)

    @property
    def on_device(self) -> bool:
        """Whether the script trains on a GPU."""
        return bool(self.capture.clock == "device")

    def called(self, what: str) -> bool:
        """Whether the loop was seen to make this call (see the doctor's `Call.what`)."""
        return any(call.what == what for call in self.capture.calls)

    def note(self, fix: str, line: str, *, instead_of: str = "", left: bool = False) -> None:
        """Said once in the table, however often it happens. `left`: it says what was not done."""
        lines = self.notes.setdefault(fix, [])
        if instead_of in lines:
            lines.remove(instead_of)
        if line not in lines:
            lines.append(line)
        if left:
            self.left.setdefault(fix, set()).add(line)

    def did_nothing(self, fix: str) -> bool:
        """Whether it left alone all that it came across."""
        lines = self.notes.get(fix, [])
        return bool(lines) and self.left.get(fix, set()).issuperset(lines)

    def give_up(self, fix: str, error: BaseException) -> None:
        """A fix failed; the caller goes on as the script would have without it."""
        if fix in self.failures:
            return
        self.failures[fix] = f"{type(error).__name__}: {error}"
        warn(
            f"{fix} failed and is off for the rest of this run ({self.failures[fix]})."
            " The script goes on as written."
        )


@dataclass(frozen=True)
class Fix:
    """One change that makes scripts faster.

    `applies` says whether it helps this script, and why or why not. `apply` puts it in place, in
    the process that runs the script and before that starts, and returns what takes it away.
    `kind` is E where results stay the same bit for bit, N where they may round differently.
    `what` says in a few words what it does; `cures` are rules of the doctor whose finding it
    removes.
    """

    name: str
    kind: FixClass
    what: str
    cures: tuple[str, ...]
    applies: Callable[[Situation], tuple[bool, str]]
    apply: Callable[[Situation], Undo]
