"""Long lists, dictionaries and arrays that samples are made from: too long to look into every entry
before every batch. Lists are compared as they are, object by object; and of all that is long, those
entries are looked into that the indices of a batch lead to.
"""

import marshal
import operator
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from slipstream.run.loading.looks import as_bytes, can_be_written, is_users_class

_FEW = 256  # items, all of which are looked into elsewhere
_MOST = 64  # long things
_MANY = 4_000_000  # items, which are too many to hold on to
_LARGE = 1 << 20  # bytes of an array of few rows
_BYTES = 1 << 12  # of a row
_TEXT = 1 << 9
_DEPTH = 3
_ALSO_NUMPYS = frozenset({
    torch.float32, torch.float64, torch.float16, torch.uint8, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.bool,
})  # fmt: skip
_ATOMS = frozenset({int, float, complex, bool, type(None)})


class Long:
    """Those among `things`, as they are now. `unsettled`: lists and the like whose items can change
    where they are.
    """

    def __init__(self, things: Iterable[Any], dataset: Any) -> None:
        self._subsets: list[Any] = []
        while type(dataset) is Subset:
            self._subsets.append(dataset)
            dataset = dataset.dataset
        self._things = [thing for thing in things if _is_long(thing)][:_MOST]
        self._with_inner = [thing for thing in self._things if not _holds_settled(thing)]
        self.unsettled = [
            thing for thing in self._with_inner if not isinstance(thing, (np.ndarray, torch.Tensor))
        ]
        changing = [thing for thing in self._things if _is_changing(thing)]
        self._looks = [look for thing in changing for look in _looks(thing)]
        self._found = [[*look()] for look in self._looks]

    def is_same(self) -> bool:
        """Whether lists and dictionaries hold the objects that they held."""
        try:
            # Quick as long as they do: objects that are the same are not asked whether they equal.
            return all(
                found == look() for look, found in zip(self._looks, self._found, strict=True)
            )
        except Exception:  # others, which cannot be compared
            return False

    def entries(self, index: Any, *, inner: bool = False) -> int:
        """What lies at the indices of a batch: equal in processes that were forked, as long as it
        is. `inner`: of those alone where `is_same` does not tell.
        """
        things = self._with_inner if inner else self._things
        if not things:
            return 0
        items = [*index] if isinstance(index, (list, tuple)) else [index]
        try:
            numbers = [*map(operator.index, items)]
            for subset in self._subsets:
                numbers = [operator.index(subset.indices[number]) for number in numbers]
        except Exception:
            numbers = []
        if any(isinstance(thing, dict) for thing in things):
            items = [*numbers, *items, *_names(self._things, numbers)]
        return hash(tuple(_entries(thing, numbers, items) for thing in things))


def _names(things: list[Any], numbers: list[int]) -> list[Any]:
    """What lists have there and others may be looked up by."""
    found: list[Any] = []
    for thing in things:
        if isinstance(thing, (list, tuple)):
            for value in (thing[n] for n in numbers if -len(thing) <= n < len(thing)):
                found += value if type(value) is tuple else (value,)
    return [value for value in found if isinstance(value, (str, int, bytes, PurePath))]


def _is_long(thing: Any) -> bool:
    if isinstance(thing, np.ndarray):
        return thing.ndim > 0 and _is_large(thing) and can_be_written(thing)
    if isinstance(thing, torch.Tensor):
        is_plain = thing.layout is torch.strided and thing.device.type == "cpu"
        return is_plain and thing.ndim > 0 and _is_large(thing)
    return isinstance(thing, (list, tuple, dict, set, deque)) and len(thing) > _FEW


def _is_large(array: Any) -> bool:
    return len(array) > _FEW or (len(array) > 1 and array.nbytes > _LARGE)


def _is_changing(thing: Any) -> bool:
    return not isinstance(thing, (tuple, np.ndarray, torch.Tensor)) and len(thing) <= _MANY


def _holds_settled(thing: Any) -> bool:
    """Whether its items, of which the first stands for all, can only be put in another's place."""
    if isinstance(thing, (np.ndarray, torch.Tensor)):
        return False
    return _is_settled(next(iter(thing.values() if isinstance(thing, dict) else thing)))


def _is_settled(item: Any) -> bool:
    if type(item) is tuple:
        return all(map(_is_settled, item))
    return type(item) in _ATOMS or isinstance(item, (str, bytes, PurePath, np.generic))


def _looks(thing: Any) -> list[Callable[[], list[Any]]]:
    if type(thing) is list:
        return [lambda: thing]
    if isinstance(thing, dict):
        return [lambda: [*thing], lambda: [*thing.values()]]
    return [lambda: [*thing]]


def _entries(thing: Any, numbers: list[int], items: list[Any]) -> bytes:
    try:
        if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
            return _rows(thing, [n for n in numbers if -len(thing) <= n < len(thing)])
        if isinstance(thing, torch.Tensor):
            inside = [n for n in numbers if -len(thing) <= n < len(thing)]
            return _rows_of_tensor(thing.detach(), inside)
        if isinstance(thing, dict):
            found = [thing.get(item) for item in items]
        elif isinstance(thing, (set, deque)):
            return b""
        else:
            found = [thing[n] for n in numbers if -len(thing) <= n < len(thing)]
        # The second version of the format tells values and types, and nothing of who holds them.
        return marshal.dumps([_form(value, _DEPTH) for value in found], 2)
    except Exception:
        return b""


def _rows(array: Any, numbers: list[int]) -> bytes:
    """Of wide ones a part."""
    nbytes = array.nbytes // len(array)
    if nbytes <= _BYTES:
        return bytes(array[numbers].tobytes())
    if not array.flags.c_contiguous:
        return b""
    rows = array.reshape(len(array), -1)
    return bytes(rows[numbers, :: nbytes // _BYTES + 1].tobytes())


def _rows_of_tensor(tensor: torch.Tensor, numbers: list[int]) -> bytes:
    if _is_numpys(tensor):
        return _rows(tensor.numpy(), numbers)  # sooner
    nbytes = tensor.nbytes // len(tensor)
    if nbytes <= _BYTES:
        return bytes(as_bytes(tensor[numbers]))
    if not tensor.is_contiguous():
        return b""
    rows = tensor.reshape(len(tensor), -1)[:, :: nbytes // _BYTES + 1]
    return bytes(as_bytes(rows[numbers]))


def _is_numpys(tensor: torch.Tensor) -> bool:
    is_plain = tensor.is_cpu and tensor.layout is torch.strided
    return is_plain and tensor.dtype in _ALSO_NUMPYS and not tensor.is_neg()


def _form(value: Any, depth: int) -> Any:
    """What tells a value from another one that may come into its place."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is str or kind is bytes:
        is_short = len(value) <= _TEXT
        return value if is_short else (len(value), id(value), value[:_TEXT], value[-_TEXT:])
    if isinstance(value, (np.generic, np.ndarray)):
        return _form_of_numbers(value)
    if isinstance(value, torch.Tensor):
        return (
            id(value),
            value._version,
            _some(value.detach().numpy()) if _is_numpys(value) else b"",
        )
    if isinstance(value, PurePath):
        return str(value)
    if depth and len(parts := _parts(value, kind)) <= _FEW:
        return [kind.__name__, *(_form(part, depth - 1) for part in parts)]
    return id(value)


def _form_of_numbers(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.dtype.str, value.tobytes()
    if value.dtype.hasobject:
        few = value.size <= _FEW and value.dtype == np.dtype(object)
        return [_form(one, 1) for one in value.flat] if few else value.size
    return id(value), _some(value)


def _some(array: Any) -> bytes:
    """Of all parts of an array."""
    if array.nbytes <= _BYTES:
        return bytes(array.tobytes())
    if array.flags.c_contiguous:
        return bytes(array.reshape(-1)[:: array.nbytes // _BYTES + 1].tobytes())
    return _rows(array, [0, len(array) // 2, -1])


def _parts(value: Any, kind: type) -> Any:
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, SimpleNamespace) or (hasattr(value, "__dict__") and is_users_class(kind)):
        return [*vars(value).values()]
    return [id(value)]
