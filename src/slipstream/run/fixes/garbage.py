"""`garbage-pauses`: Python's collector looks at what is new, between steps.

What was made before the loop is frozen: full collections no longer go through it. Those that
Python starts by itself, in the middle of a step, are put off and done at the end of some steps.
They are put off, not taken away: where a script makes many objects without a step, Python still
collects. What lives when the loop begins and becomes a ring that nobody reaches stays until the
script makes another optimizer, or collects itself.
"""

import gc
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo

NAME = "garbage-pauses"
SETTLED = 4  # steps until everything that stays has been made
YOUNG, ALL = 10, 500  # steps between collections
PUT_OFF = 50  # times as many objects as Python allows
_FULL = 2  # the oldest generation, and all others
# As they are without a change, in blocks within blocks too.
_count_frozen, _threshold = gc.get_freeze_count, gc.get_threshold
_active: "weakref.WeakSet[_Pauses]" = weakref.WeakSet()


def applies(situation: Situation) -> tuple[bool, str]:
    """Where pauses were seen that count."""
    if not any(entry["rule"] == "garbage-collection" for entry in situation.report["findings"]):
        return False, "Python's collector takes no time that counts"
    return True, "Python's collector stops the loop"


def apply(situation: Situation) -> Undo:
    """From the first steps of the loop on."""
    pauses = _Pauses(situation)
    _active.add(pauses)
    patches = Patches()
    patches.replace(Optimizer, "__init__", pauses.wrap_make)
    patches.replace(gc, "collect", pauses.wrap_collect)
    for name in ("get_objects", "get_referrers"):
        patches.replace(gc, name, pauses.wrap_search)
    patches.replace(gc, "get_freeze_count", pauses.wrap_count)
    patches.replace(gc, "get_threshold", pauses.wrap_threshold)
    handle = register_optimizer_step_post_hook(lambda *_: pauses.after_step())

    def undo() -> None:
        handle.remove()
        patches.undo()
        pauses.end()

    return undo


def _in_child() -> None:
    for pauses in _active:
        pauses.in_child()


os.register_at_fork(after_in_child=_in_child)  # once: there is no way to take it back


class _Pauses:
    """Counts steps, and collects at some of them."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._steps = 0
        self._is_on = True
        self._own: tuple[int, int, int] | None = None  # thresholds of the script
        self._set: tuple[int, int, int] | None = None
        self._gather = gc.collect  # as it is without our change
        self._frozen_before = _count_frozen()  # Python 3.12 starts with some

    def wrap_make(self, original: Any) -> Any:
        def init(*args: Any, **kwargs: Any) -> None:
            # Another model may be trained now, and the frozen one be garbage.
            self.end()
            self._steps = 0
            original(*args, **kwargs)

        return init

    def wrap_collect(self, original: Any) -> Any:
        def collect(generation: int = _FULL) -> Any:
            is_asked = self._own is not None and generation == _FULL and is_users(_caller())
            if not is_asked:
                return original(generation)
            with _unfrozen():  # the script asks for all of it
                return original(generation)

        return collect

    def wrap_search(self, original: Any) -> Any:
        """What looks for objects does not find frozen ones."""

        def search(*args: Any, **kwargs: Any) -> Any:
            if self._own is None:
                return original(*args, **kwargs)
            with _unfrozen():
                return original(*args, **kwargs)

        return search

    def wrap_count(self, original: Any) -> Any:
        def count() -> Any:
            return original() if self._own is None else self._frozen_before

        return count

    def wrap_threshold(self, original: Any) -> Any:
        def threshold() -> Any:
            found = original()
            return found if self._own is None or found != self._set else self._own

        return threshold

    def after_step(self) -> None:
        """The end of one."""
        if not self._is_on:
            return
        self._steps += 1
        try:
            if self._steps == SETTLED:
                self._begin()
            elif self._own is not None:
                self._collect()
        except Exception as error:
            self._is_on = False
            self._situation.give_up(NAME, error)

    def end(self) -> None:
        """As the script had it."""
        if self._own is None:
            return
        if _threshold() == self._set:
            gc.set_threshold(*self._own)
        self._own = None
        gc.unfreeze()

    def in_child(self) -> None:
        """A worker makes no steps: nobody would collect what is put off."""
        self._is_on = False
        if self._own is not None and _threshold() == self._set:
            gc.set_threshold(*self._own)

    def _begin(self) -> None:
        has_frozen = _count_frozen() > self._frozen_before
        if not gc.isenabled() or not _threshold()[0] or has_frozen:
            self._is_on = False  # the script sees to it itself
            return
        self._gather()
        gc.freeze()
        self._own = _threshold()
        gc.set_threshold(self._own[0] * PUT_OFF, *self._own[1:])
        self._set = _threshold()

    def _collect(self) -> None:
        if not gc.isenabled() or _threshold() != self._set:
            self.end()  # from here on the script sees to it itself
            self._is_on = False
        elif self._steps % ALL == 0:
            self._gather()
        elif self._steps % YOUNG == 0:
            self._gather(1)


@contextmanager
def _unfrozen() -> Iterator[None]:
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()


def _caller() -> CodeType:
    """Of the function that calls this: the first that is not another fix."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("slipstream.run."):
        frame = frame.f_back
    return (frame or sys._getframe(2)).f_code


FIX = Fix(
    NAME, "E", "garbage is collected between steps, and only among what is new",
    ("garbage-collection",), applies, apply,
)  # fmt: skip
