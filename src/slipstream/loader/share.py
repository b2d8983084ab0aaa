"""Long lists of a dataset, moved to memory that all workers share.

A forked worker has its parent's lists for nothing, until it looks at an item: counting the
reference writes to the page that holds it, and the page is copied. After an epoch every worker has
a list of its own. Items in one block of bytes have no reference counts.
"""

import operator
import os
from collections.abc import Callable, MutableSequence, Sequence
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from types import MemberDescriptorType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt
from torch.utils.data import ConcatDataset, Dataset, Subset

from slipstream.errors import StorageError
from slipstream.loader.memory import Bytes, make_shared, map_shared

# About what an item and its place in a list take, and what duplicates may take in all workers.
_ITEM_BYTES = 100
_TOLERATED_BYTES = 256 << 20
_CHUNK = 1 << 20
_LOOKED_AT = 1000


def share_lists(dataset: Any, workers: int) -> Any:
    """The dataset, or a shallow copy of it whose long lists are shared ones.

    Lists of str, int or (str, int) are moved if copies of them in all workers would be large. Looks
    into attributes of the dataset and of those that a Subset or ConcatDataset stands on. A dataset
    that is more than its attributes is left as it is.
    """
    return _share(dataset, _TOLERATED_BYTES // (_ITEM_BYTES * max(1, workers)), {})


def _share(dataset: Any, limit: int, done: dict[int, Any]) -> Any:
    if id(dataset) in done:
        return done[id(dataset)]
    if not isinstance(dataset, Dataset) or not _is_all_attributes(type(dataset)):
        return dataset
    changed: dict[str, Any] = {}
    for name, value in vars(dataset).items():
        if type(value) is list and len(value) > limit:
            shared = done[id(value)] if id(value) in done else share_list(value)
            if shared is not None:
                changed[name] = done[id(value)] = shared
    if type(dataset) is Subset:
        changed["dataset"] = _share(dataset.dataset, limit, done)
    elif type(dataset) is ConcatDataset:
        changed["datasets"] = [_share(part, limit, done) for part in dataset.datasets]
    if all(vars(dataset)[name] is value for name, value in changed.items()):
        return dataset
    # Not by copy.copy: what the dataset leaves out of a pickle must be in this one.
    clone: Any = object.__new__(type(dataset))
    vars(clone).update(vars(dataset), **changed)
    done[id(dataset)] = clone
    return clone


def _is_all_attributes(kind: type) -> bool:
    """Whether a second object with the same `__dict__` does as well as the first."""
    if hasattr(kind, "__del__"):
        return False  # the end of one of them would close what both have
    if any(
        isinstance(m, MemberDescriptorType) for base in kind.__mro__ for m in vars(base).values()
    ):
        return False
    try:
        return hasattr(object.__new__(kind), "__dict__")
    except TypeError:  # a C type's heir, or an abstract class
        return False


def share_list(items: list[Any]) -> "SharedList | None":
    """A shared list of the same items, or None where they are not all of one known kind."""
    kinds = {_kind(item) for item in items[:_LOOKED_AT]}
    kind = kinds.pop() if len(kinds) == 1 else None
    try:
        if kind == "int":
            return SharedList(_Numbers(items), None)
        if kind == "str":
            return SharedList(None, _Texts(items))
        if kind == "pair":
            numbers = _Numbers([number for _, number in items])
            return SharedList(numbers, _Texts([text for text, _ in items]))
    except (TypeError, ValueError, OverflowError, StorageError):
        # An item further on is of another kind, or there is no memory for a copy.
        return None
    return None


def _kind(item: object) -> str | None:
    if type(item) is str:
        return "str"
    if type(item) is int:
        return "int"
    if type(item) is tuple and [type(part) for part in item] == [str, int]:
        return "pair"
    return None


class _SharedArray:
    """A NumPy array in shared memory; pickled as a descriptor, while a process is being started."""

    def __init__(self, nbytes: int, dtype: str, descriptor: int | None = None) -> None:
        self._descriptor = -1
        self._descriptor = make_shared(max(1, nbytes)) if descriptor is None else descriptor
        self._nbytes = nbytes
        self._dtype = dtype
        memory: Bytes = map_shared(self._descriptor, max(1, nbytes))
        self.array: npt.NDArray[Any] = memory[:nbytes].view(dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_shared, (self._nbytes, self._dtype, DupFd(self._descriptor))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _open_shared(nbytes: int, dtype: str, descriptor: Any) -> _SharedArray:
    return _SharedArray(nbytes, dtype, descriptor.detach())


class _Numbers:
    def __init__(self, items: Sequence[int]) -> None:
        self._shared = _SharedArray(8 * len(items), "<i8")
        for start in range(0, len(items), _CHUNK):
            part = items[start : start + _CHUNK]
            if not all(type(item) is int for item in part):
                raise TypeError
            self._shared.array[start : start + len(part)] = part

    def __len__(self) -> int:
        return len(self._shared.array)

    def __getitem__(self, index: int) -> int:
        return int(self._shared.array[index])


class _Texts:
    def __init__(self, items: Sequence[str]) -> None:
        chunks: list[bytes] = []
        ends = _SharedArray(8 * (len(items) + 1), "<i8")
        ends.array[0] = 0
        for start in range(0, len(items), _CHUNK):
            part = items[start : start + _CHUNK]
            if not all(type(item) is str for item in part):
                raise TypeError
            encoded = [item.encode("utf-8", "surrogatepass") for item in part]
            ends.array[start + 1 : start + 1 + len(part)] = (
                np.cumsum(np.fromiter(map(len, encoded), np.int64, len(part))) + ends.array[start]
            )
            chunks.append(b"".join(encoded))
        self._ends = ends
        self._data = _SharedArray(sum(map(len, chunks)), "|u1")
        at = 0
        for chunk in chunks:
            self._data.array[at : at + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            at += len(chunk)

    def __len__(self) -> int:
        return len(self._ends.array) - 1

    def __getitem__(self, index: int) -> str:
        start, end = self._ends.array[index : index + 2].tolist()
        return self._data.array[start:end].tobytes().decode("utf-8", "surrogatepass")


class SharedList(MutableSequence[Any]):
    """Does what a list does, with items in shared memory, until something wants to change it: then
    they become an ordinary list's, in this process. Not a `list`: C code reads those unasked.
    """

    def __init__(self, numbers: _Numbers | None, texts: _Texts | None) -> None:
        self._numbers = numbers
        self._texts = texts
        self._own: list[Any] | None = None

    def __len__(self) -> int:
        if self._own is not None:
            return len(self._own)
        return len(self._texts if self._texts is not None else self._numbers)  # type: ignore[arg-type]

    def __getitem__(self, index: Any) -> Any:
        if self._own is not None:
            return self._own[index]
        if isinstance(index, slice):
            return [self._item(k) for k in range(*index.indices(len(self)))]
        count = len(self)
        place = operator.index(index)
        if not -count <= place < count:
            raise IndexError("list index out of range")
        return self._item(place % count)

    def _item(self, place: int) -> Any:
        if self._texts is None:
            return self._numbers[place]  # type: ignore[index]
        text = self._texts[place]
        return text if self._numbers is None else (text, self._numbers[place])

    def __setitem__(self, index: Any, item: Any) -> None:
        self._become_own()[index] = item

    def __delitem__(self, index: Any) -> None:
        del self._become_own()[index]

    def insert(self, index: int, value: Any) -> None:
        """As a list's."""
        self._become_own().insert(index, value)

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """As a list's."""
        self._become_own().sort(key=key, reverse=reverse)

    def __imul__(self, times: SupportsIndex) -> "SharedList":
        own = self._become_own()
        own *= times
        return self

    def _become_own(self) -> list[Any]:
        if self._own is None:
            self._own = list(self)
            self._numbers = self._texts = None
        return self._own

    def copy(self) -> list[Any]:
        """An ordinary list of the items."""
        return list(self)

    def __eq__(self, other: object) -> Any:
        return self._compare(operator.eq, other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> Any:
        return self._compare(operator.lt, other)

    def __le__(self, other: object) -> Any:
        return self._compare(operator.le, other)

    def __gt__(self, other: object) -> Any:
        return self._compare(operator.gt, other)

    def __ge__(self, other: object) -> Any:
        return self._compare(operator.ge, other)

    def _compare(self, comparison: Callable[[Any, Any], Any], other: object) -> Any:
        if isinstance(other, list | SharedList):
            return comparison(list(self), list(other))
        return NotImplemented

    def __add__(self, other: Any) -> Any:
        if isinstance(other, list | SharedList):
            return [*self, *other]
        return NotImplemented

    def __radd__(self, other: Any) -> Any:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[Any]:
        return list(self) * times

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return repr(list(self))

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return list(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        # Only a process that is being started can be handed the descriptors.
        if self._own is None and get_spawning_popen() is not None:
            return SharedList, (self._numbers, self._texts)
        return list, (list(self),)
