"""A list as workers see it: its items lie in memory that all of them share.

A forked worker has its parent's lists for nothing, until it looks at an item: that counts a
reference, and the page with the count becomes the worker's own. Here an item is made anew from
shared bytes whenever somebody asks for it. The list itself stays beside it, untouched, for all that
is not reading: who changes the list changes that one, and reads from it from then on.
"""

import itertools
import operator
from collections.abc import Iterator, MutableSequence
from copy import deepcopy
from typing import Any, SupportsIndex

from slipstream.run.fix import warn
from slipstream.run.loading.shared_list_packing import NotPlain, Packed, is_held

_MOST_LENT = 256
_MISSING = object()


def _to_change(name: str) -> Any:
    """A method of lists that changes them."""

    def call(self: "PackedList", *args: Any, **kwargs: Any) -> Any:
        return getattr(self._whole(to_change=True), name)(*args, **kwargs)

    call.__name__ = name
    return call


def _to_read(name: str) -> Any:
    """One that reads many items at once, which takes too long one by one."""

    def call(self: "PackedList", *args: Any) -> Any:
        return getattr(self._whole(), name)(*map(_plain, args))

    call.__name__ = name
    return call


def _plain(value: Any) -> Any:
    return value._whole() if type(value) is PackedList else value


def _may_be_held(items: list[Any]) -> bool:
    try:
        return is_held(items, in_lists=1)
    except NotPlain:  # by now
        return True


class PackedList(MutableSequence[Any]):
    """Does what `items` does, and `isinstance` says that it is a list. `packed` are its items.

    An item that can be changed is the same object for as long as somebody has it, and stays what
    was made of it.
    """

    __slots__ = ("_count", "_is_plain", "_items", "_lent", "_own", "_read", "packed")

    def __init__(self, items: list[Any], packed: Packed) -> None:
        self._items, self.packed, self._count = items, packed, len(items)
        self._is_plain = False
        self._read = None if packed.is_changing else packed.item
        self._lent: dict[int, Any] = {}  # items that can be changed, the oldest first
        self._own = set(packed.held)  # those that are to be found in the list itself

    def is_untouched(self) -> bool:
        """Whether neither the list nor what it holds was changed by anybody here."""
        self.settle()
        own = self._own - self.packed.held
        return self._is_packed() and all(self.packed.has(k, self._items[k]) for k in own)

    def settle(self) -> None:
        """Items that were lent and changed, or that somebody still has, lie in the list now."""
        self._take_back([*self._lent])

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        if type(index) is slice:
            return [self[place] for place in range(*index.indices(len(self)))]
        try:
            place = operator.index(index)
            if place < 0:
                place += self._count
            if 0 <= place < self._count and self._is_packed():
                return self._lend(place) if self._read is None else self._read(place)
        except Exception as error:
            if hasattr(index, "__index__"):
                self._give_up(error)
        return self._items[index]  # or raises as lists do

    def __iter__(self) -> Iterator[Any]:
        place = 0
        while place < len(self):
            yield self[place]
            place += 1

    def _is_packed(self) -> bool:
        # By another name, somebody may have the list and change it.
        return not self._is_plain and len(self._items) == self._count

    def _lend(self, place: int) -> Any:
        if place in self._own:
            return self._items[place]
        item = self._lent.get(place, _MISSING)
        if item is _MISSING:
            item = self._lent.setdefault(place, self.packed.item(place))
            if len(self._lent) > _MOST_LENT:
                self._take_back([*itertools.islice(self._lent, _MOST_LENT // 2)])
        return item

    def _take_back(self, places: list[int]) -> None:
        items = [self._lent.pop(place, _MISSING) for place in places]
        # In one step, as most are as they were and nobody has them.
        is_any_held = _may_be_held(items)
        while items:
            item, place = [items.pop()], places.pop()
            if item[0] is _MISSING or len(self._items) != self._count:
                continue  # another thread was faster, or the list was changed
            if (is_any_held and _may_be_held(item)) or not self.packed.has(place, item[0]):
                self._own.add(place)
                self._items[place] = item[0]

    def _give_up(self, error: Exception) -> None:
        self._whole(to_change=True)
        warn(
            f"a list in shared memory failed ({type(error).__name__}: {error});"
            " the list itself is read from now on"
        )

    def _whole(self, *, to_change: bool = False) -> list[Any]:
        """The list itself. From here on everything is found there, if somebody may change it, or
        get at the items in it that can be changed.
        """
        if not self._is_plain and (to_change or self.packed.is_changing):
            self.settle()
            self._is_plain = True
        if to_change:
            self.packed.memory[0] = 1
        return self._items

    __setitem__, __delitem__ = _to_change("__setitem__"), _to_change("__delitem__")
    insert, append, extend = _to_change("insert"), _to_change("append"), _to_change("extend")
    pop, remove, clear = _to_change("pop"), _to_change("remove"), _to_change("clear")
    reverse, sort = _to_change("reverse"), _to_change("sort")
    __iadd__, __imul__ = _to_change("__iadd__"), _to_change("__imul__")
    __contains__, index, count = _to_read("__contains__"), _to_read("index"), _to_read("count")
    copy, __copy__, __repr__ = _to_read("copy"), _to_read("copy"), _to_read("__repr__")
    __add__, __mul__, __rmul__ = _to_read("__add__"), _to_read("__mul__"), _to_read("__rmul__")
    __eq__, __ne__ = _to_read("__eq__"), _to_read("__ne__")
    __lt__, __le__ = _to_read("__lt__"), _to_read("__le__")
    __gt__, __ge__ = _to_read("__gt__"), _to_read("__ge__")
    __hash__ = None  # type: ignore[assignment]

    def __radd__(self, other: Any) -> Any:
        return other + self._whole() if isinstance(other, list) else NotImplemented

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return deepcopy(self._whole(), memo)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (self._whole(),)

    __class__ = property(lambda self: list)
