"""Long lists that a dataset holds, and those that stand in for them while workers are started."""

import inspect
import operator
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torch.utils.data import Dataset
from torch.utils.weak import WeakIdKeyDictionary

from slipstream.run.fix import Say
from slipstream.run.loading.depth import available_bytes
from slipstream.run.loading.looks import content, global_names, names
from slipstream.run.loading.shared_list import PackedList
from slipstream.run.loading.shared_list_packing import NotPlain, digest_of, pack

# What a worker may lose to its own copies until it is worth the time to pack them: from so much
# growth on, the doctor calls it copy-on-write.
LEAST_BYTES = 24 << 20
_LEAST_ITEMS = 1000
_LARGE_ITEM = 4096  # bytes: of a larger one, a worker copies a page and not all of it
_MOST_MEMORY = 0.25  # of what is available
_SAMPLED = 500
_MOST_PARTS = 64
_FEW = 256
_TELL_CLASSES = frozenset({"type", "id"})
_MISSING = object()


@dataclass(frozen=True)
class Place:
    """`table[key]`: `table` are attributes, or a dictionary among them."""

    table: dict[Any, Any]
    key: Any


@dataclass
class _Kept:
    """A list that was packed, and what it held then."""

    items: list[Any]
    held: list[Any]
    view: PackedList | None  # None: it is left alone
    nbytes: int = 0

    def is_current(self, items: list[Any]) -> bool:
        """Whether the list is that one, and nothing in it has changed."""
        if items is not self.items or self.view is None:
            return items is self.items
        if len(items) != len(self.held) or not all(map(operator.is_, items, self.held)):
            return False
        packed = self.view.packed
        return not packed.is_changing or digest_of(items, packed.path_kind) == packed.digest


class Shelf:
    """Lists that were packed, for as long as the datasets live that they belong to."""

    def __init__(self) -> None:
        self._kept: MutableMapping[Any, dict[int, _Kept]] = WeakIdKeyDictionary()

    def views(self, dataset: Any, say: Say) -> list[tuple[Place, PackedList]]:
        """What is to stand where, so that workers of this dataset share its lists."""
        places = [*places_of(dataset)] if hasattr(dataset, "__weakref__") else []
        found = {id(items): items for place in places if (items := _list_at(place)) is not None}
        taken = {key: taken_by(items) for key, items in found.items()}
        if sum(taken.values()) < LEAST_BYTES:
            return []
        kept = self._kept.get(dataset, {})
        now = {
            key: kept[key] if key in kept and kept[key].is_current(items) else _moved(items, say)
            for key, items in found.items()
        }
        for key, entry in now.items():
            if entry.view is not None and entry.view.packed.memory[0]:
                say("a list is left alone: workers change it", left=True)
                now[key] = _Kept(entry.items, entry.held, None)
        self._kept[dataset] = now
        moved = [(place, now[id(place.table[place.key])].view) for place in places]
        _tell([entry for entry in now.values() if entry.view is not None], say)
        return [(place, view) for place, view in moved if view is not None]

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()


def _tell(entries: list[_Kept], say: Say) -> None:
    if entries:
        count = sum(len(entry.items) for entry in entries)
        mib = sum(entry.nbytes for entry in entries) / 2**20
        lists = "a list" if len(entries) == 1 else f"{len(entries)} lists"
        say(f"{lists} of {count:,} items in {mib:.0f} MiB that all workers share")


def _moved(items: list[Any], say: Say) -> _Kept:
    try:
        packed = pack(items)
    except NotPlain as why:
        say(f"a list of {len(items):,} is left alone: {why}", left=True)
        return _Kept(items, items, None)
    except OSError as error:
        say(f"a list of {len(items):,} is left alone: {error.strerror}", left=True)
        return _Kept(items, items, None)
    return _Kept(items, items.copy(), PackedList(items, packed), len(packed.memory))


@contextmanager
def in_place(views: list[tuple[Place, PackedList]]) -> Iterator[None]:
    """Meanwhile these stand for their lists: for processes that are forked, for ever."""
    put = []
    try:
        for place, view in views:
            put.append((place, view, place.table[place.key]))
            place.table[place.key] = view
        yield
    finally:
        for place, view, items in put:
            if place.table.get(place.key, _MISSING) is view:
                place.table[place.key] = items
            view.settle()


def places_of(dataset: Any) -> Iterator[Place]:
    """Of long lists among the attributes of a dataset and of the datasets that it is made of."""
    queue, seen = [dataset], {id(dataset)}
    while queue and len(seen) <= _MOST_PARTS:
        owner = queue.pop(0)
        attributes = getattr(owner, "__dict__", None)
        if type(attributes) is not dict:
            continue
        for name, value in attributes.items():
            if _is_long(value) and _can_be_replaced(type(owner), name, value):
                yield Place(attributes, name)
            elif type(value) is dict and len(value) <= _FEW:
                for key, entry in value.items():
                    if _is_long(entry) and _can_be_replaced(type(owner), name, entry):
                        yield Place(value, key)
            few = value if type(value) in (list, tuple) and len(value) <= _MOST_PARTS else (value,)
            parts = [part for part in few if isinstance(part, Dataset) and id(part) not in seen]
            seen.update(map(id, parts))
            queue += parts


def _is_long(value: Any) -> bool:
    return type(value) is list and len(value) >= _LEAST_ITEMS


def _can_be_replaced(kind: type, name: str, items: list[Any]) -> bool:
    """Whether the class has no property of that name, and its methods neither ask for the class of
    what is there, or where it lies in memory, nor have the list by another name.
    """
    if hasattr(inspect.getattr_static(kind, name, None), "__set__"):
        return False
    methods = (
        getattr(value, "__func__", value)
        for base in kind.__mro__
        for key, value in vars(base).items()
        if key != "__init__"
    )
    return not any(
        _asks_for_class(method, name) or _has_by_name(method, items)
        for method in methods
        if isinstance(method, FunctionType)
    )


def _asks_for_class(method: FunctionType, name: str) -> bool:
    code = method.__code__
    return name in names(code) and bool(_TELL_CLASSES & global_names(code))


def _has_by_name(method: FunctionType, items: list[Any]) -> bool:
    scope, cells = method.__globals__, method.__closure__ or ()
    used = (scope.get(name) for name in global_names(method.__code__))
    return any(value is items for value in (*used, *map(content, cells)))


def _list_at(place: Place) -> list[Any] | None:
    items = place.table.get(place.key)
    return items if type(items) is list else None


def taken_by(items: list[Any]) -> int:
    """About what a worker copies that reads all items: the bytes of those that differ, which are
    no more than a page each. None of lists that would not fit.
    """
    step = max(1, len(items) // _SAMPLED)
    some = items[::step]
    sizes = {id(item): _nbytes(item) for item in some}
    mean = sum(sizes.values()) / len(some)
    fits = mean * len(items) <= _MOST_MEMORY * available_bytes()
    return int(mean * len(items)) if fits and mean <= _LARGE_ITEM else 0


def _nbytes(item: Any, depth: int = 3) -> int:
    own = sys.getsizeof(item)
    if depth and isinstance(item, (tuple, list)):
        own += sum(_nbytes(part, depth - 1) for part in item[:_FEW])
    elif depth and isinstance(item, dict):
        own += sum(_nbytes(part, depth - 1) for part in [*item.values()][:_FEW])
    return own
