"""What a batch is, bit for bit, and whether it can travel."""

import datetime
import decimal
import enum
import hashlib
import io
import re
import uuid
from collections import deque
from multiprocessing.reduction import ForkingPickler
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch

from slipstream.loader.parcel import Leaf, has_usual_strides, wrap_each

_MOST_OBJECTS = 500
_PLAIN = frozenset({list, tuple, dict})
# Nobody can change these, whoever has them.
_FROZEN = (
    type(None), bool, int, float, complex, str, bytes, range, slice, tuple, frozenset, type,
    FunctionType, BuiltinFunctionType, PurePath, enum.Enum, datetime.date, datetime.time,
    datetime.timedelta, datetime.tzinfo, decimal.Decimal, uuid.UUID, re.Pattern, np.generic,
    np.dtype, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_WITHOUT_PARTS = (torch.Tensor, np.ndarray, *_FROZEN)


def digest(batch: Any) -> str:
    """Of its structure, its values, and how its tensors lie in memory."""
    parcel = wrap_each(batch)
    found = hashlib.blake2b(parcel.skeleton, digest_size=16)
    for leaf in parcel.leaves:
        found.update(repr((leaf.dtype, tuple(leaf.shape), _strides(leaf))).encode())
        found.update(memoryview(np.ascontiguousarray(_bytes_of(leaf))))
    return found.hexdigest()


def trouble(first: Any, second: Any) -> str:
    """Why a batch cannot be handed over from another process, or an empty string. `second` was
    made like `first`: memory and objects that both have are not theirs.
    """
    leaves, others = wrap_each(first).leaves, wrap_each(second).leaves
    met = _changeable(first)
    if not all(map(_is_usual, leaves)) or any(map(_is_turned, met.values())):
        return "its tensors lie in memory in a way that would be lost"
    places = [_memory(leaf) for leaf in leaves if leaf.nbytes]
    if set(places) & {_memory(leaf) for leaf in others if leaf.nbytes}:
        return "its tensors are the dataset's own"
    if len(set(places)) < len(places):
        return "its tensors share memory"
    if met.keys() & _changeable(second).keys():
        return "its objects are the dataset's own"
    return ""


def kinds(batch: Any) -> frozenset[type]:
    """Of what is in it, but for what everybody has, as far as there is time to look."""
    found: set[type] = set()
    ahead = deque([batch])
    for _ in range(_MOST_OBJECTS):
        if not ahead:
            break
        thing = ahead.popleft()
        kind = type(thing)
        if isinstance(thing, dict):
            ahead += thing.values()
        elif isinstance(thing, (list, tuple, set, frozenset)):
            ahead += thing
        elif isinstance(thing, _WITHOUT_PARTS):
            continue
        else:
            ahead += getattr(thing, "__dict__", {}).values()
        if kind not in _PLAIN:
            found.add(kind)
    return frozenset(found)


def _is_usual(leaf: Leaf) -> bool:
    """Where a tensor is contiguous it can have other strides than the usual ones."""
    if isinstance(leaf, np.ndarray) or not leaf.is_contiguous():
        return True
    return has_usual_strides(leaf)


def _is_turned(thing: Any) -> bool:
    """Whether it is a tensor that holds its numbers with the other sign."""
    return isinstance(thing, torch.Tensor) and (thing.is_conj() or thing.is_neg())


def _strides(leaf: Leaf) -> tuple[int, ...]:
    return tuple(leaf.strides if isinstance(leaf, np.ndarray) else leaf.stride())


def _bytes_of(leaf: Leaf) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)


def _memory(leaf: Leaf) -> int:
    if isinstance(leaf, torch.Tensor):
        return leaf.untyped_storage().data_ptr()
    owner: Any = leaf
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return int(owner.ctypes.data)


def _changeable(batch: Any) -> dict[int, Any]:
    """Objects in it that somebody could change, by their addresses."""
    walk = _Walk(io.BytesIO(), 5)
    walk.dump(batch)
    return walk.met


class _Walk(ForkingPickler):
    """Meets all that would travel. Holds it, so that none takes another's address."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.met: dict[int, Any] = {}

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, _FROZEN) and not _is_frozen_by_its_class(type(value)):
            self.met[id(value)] = value

    def reducer_override(self, value: Any) -> Any:
        is_leaf = isinstance(value, torch.Tensor) or (
            isinstance(value, np.ndarray) and not value.dtype.hasobject
        )
        if is_leaf:
            return int, ()
        if _is_frozen_by_its_class(type(value)) and hasattr(value, "__dict__"):
            return tuple, (tuple(vars(value).values()),)
        return NotImplemented


def _is_frozen_by_its_class(kind: type) -> bool:
    return bool(getattr(getattr(kind, "__dataclass_params__", None), "frozen", False))
