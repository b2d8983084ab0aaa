"""`empty-cache`: `torch.cuda.empty_cache()` in the loop is left out, `gc.collect()` is a short one.

Both give back memory that the next step asks for again. They are let through as long as they take
next to none of the run's time, which is how often they are useful, and whenever memory is short.
Else only what is new is looked through: rings that a step leaves behind go with it, as ever.
"""

import dis
import gc
import sys
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

import psutil
import torch

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches
from slipstream.run.fix import Fix, Situation, Undo

NAME = "empty-cache"
RULES = ("empty-cache-in-loop", "forced-garbage-collection")
SHARE = 0.01  # of the time since the first call
SHORT = 0.10  # of the memory
_NEW = 1  # generations of objects that are looked through: what no full collection has seen
GROWTH = 1.1  # of this process since the latest call that was let through


def applies(situation: Situation) -> tuple[bool, str]:
    """Where such calls take time that counts."""
    found = [entry for entry in situation.report["findings"] if entry["rule"] in RULES]
    if not found:
        return False, "no such calls in the loop that take time"
    return True, f"called in the loop at {found[0]['where']}"


def apply(situation: Situation) -> Undo:
    """Of calls by the script's own code."""
    patches = Patches()
    collect = gc.collect
    patches.replace(gc, "collect", _Rare(situation, _host_is_short, lambda: collect(_NEW)).wrap)
    patches.replace(torch.cuda, "empty_cache", _Rare(situation, _device_is_short, int).wrap)
    return patches.undo


class _Rare:
    """Lets a function through when memory is short, or so seldom that it costs nothing."""

    def __init__(
        self, situation: Situation, is_short: Callable[[int], bool], instead: Callable[[], int]
    ) -> None:
        self._situation = situation
        self._is_short = is_short
        self._instead = instead
        self._began: float | None = None
        self._spent = 0.0
        self._memory = 0  # of this process, behind the latest call

    def wrap(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._is_needless(sys._getframe(1)):
                began = time.perf_counter()
                result = original(*args, **kwargs)
                self._note(began)
                return result
            return self._instead()

        return call

    def _is_needless(self, caller: Any) -> bool:
        if self._situation.failures.get(NAME) or not is_users(caller.f_code):
            return False
        try:
            if self._began is None or not _drops_result(caller.f_code, caller.f_lasti):
                return False
            elapsed = time.perf_counter() - self._began
            return self._spent > SHARE * elapsed and not self._is_short(self._memory)
        except Exception as error:
            self._situation.give_up(NAME, error)
            return False

    def _note(self, began: float) -> None:
        if self._began is None:
            self._began = began
        self._spent += time.perf_counter() - began
        self._memory = _own_memory()


_known: dict[tuple[CodeType, int], bool] = {}


def _drops_result(code: CodeType, at: int) -> bool:
    """Whether the call at this instruction stands for itself: its result goes nowhere."""
    known = _known.get((code, at))
    if known is None:
        after = (i.opname for i in dis.get_instructions(code) if i.offset > at)
        known = _known[code, at] = next((n for n in after if n != "CACHE"), "") == "POP_TOP"
    return known


def _host_is_short(before: int) -> bool:
    memory = psutil.virtual_memory()
    # Cycles may hold tensors of a device.
    is_short = memory.available < SHORT * memory.total or _device_is_short(before)
    return is_short or _own_memory() > GROWTH * before


def _device_is_short(before: int) -> bool:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    free, total = torch.cuda.mem_get_info()
    return free < SHORT * total


def _own_memory() -> int:
    return int(psutil.Process().memory_info().rss)


FIX = Fix(
    NAME, "E", "caches are not emptied in the loop, unless memory is short", RULES, applies, apply
)
