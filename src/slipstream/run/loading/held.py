"""What samples are made from, as it is when those who work ahead are started: how closely it is
looked at with every batch depends on what a batch takes.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from slipstream.run.loading.contents import contents
from slipstream.run.loading.long import Long
from slipstream.run.loading.watch import Watch

CHANGED = "samples change what the dataset holds"
_ITEM_S = 1e-7  # to pickle one takes longer
_Found = TypeVar("_Found")


class Held:
    """What `roots`, a dataset and its collate_fn, hold at the moment."""

    def __init__(self, roots: list[Any]) -> None:
        self._roots = roots
        self._watch = Watch(roots)
        self._long = Long(self._watch.seen.values(), roots[0])
        self._looks_at_lists = self._looks_throughout = False
        self._inner, self._is_inner_slow = "", False
        self._given: tuple[Any, bool, int] | None = None

    def is_same(self) -> bool:
        """As far as there is time for it with every batch."""
        look = self._watch.is_same_throughout if self._looks_throughout else self._watch.is_same
        if not look() or (self._looks_at_lists and not self._long.is_same()):
            return False
        if not self._is_inner_same():
            return False
        if self._given is None:
            return True
        index, inner, entries = self._given
        return self._long.entries(index, inner=inner) == entries

    def note_given(self, index: Any) -> None:
        """The loop has the batch of these indices: where it changes something long, it is most
        often what it has just seen.
        """
        inner = self._looks_at_lists
        self._given = index, inner, self._long.entries(index, inner=inner)

    def is_same_throughout(self) -> bool:
        """As far as it can be told."""
        return self._watch.is_same_throughout() and self._long.is_same() and self._is_inner_same()

    def contents(self) -> str:
        """As one number, with the objects of installed packages, into which nobody looks; empty
        where that cannot be had.
        """
        return contents(*self._roots, *self._watch.foreign)

    def entries(self, index: Any) -> int:
        """Of what is long, what a batch of these indices is made from."""
        return self._long.entries(index)

    def why_not(self, seconds: float) -> str:
        """Why samples cannot be made elsewhere, if looking takes no longer than that."""
        if self._watch.why_not:
            return self._watch.why_not
        is_same, quick_s = _timed(self._watch.is_same, seconds)
        if quick_s > seconds:
            return "it consists of more objects than can be watched"
        are_same, lists_s = _timed(self._long.is_same, seconds - quick_s)
        self._looks_at_lists = quick_s + lists_s <= seconds
        used = lists_s if self._looks_at_lists else 0.0
        all_same, throughout_s = _timed(self._watch.is_same_throughout, seconds - used)
        self._looks_throughout = used + throughout_s <= seconds
        used += throughout_s if self._looks_throughout else quick_s
        self._look_inside(seconds - used)
        return "" if is_same and are_same and all_same else CHANGED

    def _look_inside(self, seconds: float) -> None:
        """From here on with every batch, if it takes no longer than that."""
        self._inner = ""
        if not self._long.unsettled or self._is_inner_slow:
            return
        if sum(map(len, self._long.unsettled)) * _ITEM_S > seconds:
            self._is_inner_slow = True
            return
        inner, inner_s = _timed(lambda: contents(*self._long.unsettled), seconds)
        self._is_inner_slow = inner_s > seconds
        if not self._is_inner_slow:
            self._inner = inner

    def _is_inner_same(self) -> bool:
        return not self._inner or contents(*self._long.unsettled) == self._inner


def _timed(look: Callable[[], _Found], seconds: float) -> tuple[_Found, float]:
    """Its answer and what it takes; asked again where that is too long, as the first time is the
    slowest.
    """
    took = 0.0
    for _ in range(2):
        began = time.perf_counter()
        answer = look()
        took = time.perf_counter() - began
        if took <= seconds:
            break
    return answer, took
