"""Notices when a dataset changes: objects that its samples are made from, and what they hold.

Looks at the dataset and all that it leads to, the functions of the script that it calls by name and
their globals. Installed packages keep caches of their own; into their objects it does not look.
"""

import functools
import operator
import random
import sys
import zlib
from collections import deque
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from slipstream.doctor.record.places import is_foreign, is_users

_ATOMS = (int, float, complex, bool, str, bytes, type(None), ModuleType, BuiltinFunctionType, range)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator,
               torch.Generator)  # fmt: skip
# Not to be used in a process that was forked.
_UNFORKABLE = frozenset({"lmdb", "sqlite3", "multiprocessing", "concurrent", "asyncio"})
_MOST_OBJECTS = 2000
_FEW_ITEMS = 256
_MANY_ITEMS = 2_000_000
_ARRAY_BYTES = 1 << 14
_THOROUGH_BYTES = 1 << 24
_Look = Callable[[], Any]


class Watch:
    """What these objects hold at the moment. `why_not` says why samples cannot be made elsewhere,
    where that shows. Long lists and large arrays are left to `is_same_throughout`, those that are
    longer still to nobody: `is_complete` says whether `is_same` looks at all that may change, and
    `is_complete_throughout` whether the longer look does. Objects of installed packages, which are
    never looked into, are in neither.
    """

    def __init__(self, roots: list[Any]) -> None:
        self.why_not = ""
        self.is_complete = True
        self.is_complete_throughout = True
        self._seen: dict[int, Any] = {}
        self._quick: list[tuple[_Look, Any]] = []
        self._thorough: list[tuple[_Look, Any]] = []
        self._queue = deque(roots)
        while self._queue:
            if len(self._seen) > _MOST_OBJECTS:
                self.why_not = "it consists of more objects than can be watched"
                break
            self._visit(self._queue.popleft())

    def is_same(self) -> bool:
        """Whether nothing has changed that a quick look shows."""
        return all(_same(look(), found) for look, found in self._quick)

    def is_same_throughout(self) -> bool:
        """The same with a longer look at long lists and arrays."""
        return self.is_same() and all(_same(look(), found) for look, found in self._thorough)

    def _note(self, look: _Look, *, thorough: bool = False) -> None:
        (self._thorough if thorough else self._quick).append((look, look()))

    def _visit(self, thing: Any) -> None:
        if isinstance(thing, _ATOMS) or id(thing) in self._seen:
            return
        self._seen[id(thing)] = thing
        kind = type(thing)
        package = kind.__module__.partition(".")[0]
        if isinstance(thing, _GENERATORS):
            self.why_not = self.why_not or f"it has a random generator of its own ({kind.__name__})"
        elif package in _UNFORKABLE:
            self.why_not = self.why_not or f"it holds {kind.__module__}.{kind.__name__}"
        elif isinstance(thing, torch.Tensor) and thing.is_inference():
            self.why_not = self.why_not or "it holds a tensor of inference mode"
        elif isinstance(thing, torch.Tensor):
            self._note(lambda: (thing._version, thing.data_ptr(), thing.shape))
        elif isinstance(thing, np.ndarray):
            self._visit_array(thing)
        elif isinstance(thing, (FunctionType, MethodType, functools.partial)):
            self._visit_callable(thing)
        elif isinstance(thing, type):
            self._visit_class(thing)
        elif isinstance(thing, dict):
            self._visit_items(thing, lambda: tuple(thing.values()), lambda: tuple(thing))
        elif isinstance(thing, (list, tuple, set, frozenset, deque)):
            self._visit_items(thing, lambda: tuple(thing), tuple)
        elif hasattr(kind, "cache_info"):
            self._note(thing.cache_info)
        else:
            self._visit_object(thing)

    def _visit_array(self, array: Any) -> None:
        self._note(lambda: (array.ctypes.data, array.shape))
        if array.dtype.hasobject or not array.flags.c_contiguous:
            return
        if array.nbytes <= _ARRAY_BYTES:
            self._note(lambda: zlib.crc32(array.data))
        elif array.nbytes <= _THOROUGH_BYTES:
            self._note(lambda: zlib.crc32(array.data), thorough=True)

    def _visit_items(self, items: Any, values: _Look, keys: _Look) -> None:
        self._note(lambda: len(items))
        if len(items) > _FEW_ITEMS:
            if len(items) <= _MANY_ITEMS:
                self._note(lambda: hash(tuple(map(id, values()))), thorough=True)
            # One stands for all.
            self._queue.extend(values()[:1])
            return
        self._note(lambda: _Identical(values()))
        self._note(lambda: _Identical(keys()))
        self._queue.extend(values())

    def _visit_callable(self, thing: Any) -> None:
        if isinstance(thing, functools.partial):
            self._queue.extend([thing.func, thing.args, thing.keywords])
        elif isinstance(thing, MethodType):
            self._queue.extend([thing.__self__, thing.__func__])
        elif is_users(thing.__code__):
            cells = thing.__closure__ or ()
            self._note(lambda: _Identical(tuple(_content(cell) for cell in cells)))
            self._queue.extend(_content(cell) for cell in cells)
            scope = thing.__globals__
            names = [name for name in _names(thing.__code__) if name in scope]
            self._note(lambda: _Identical(tuple(scope.get(name) for name in names)))
            self._queue.extend(scope[name] for name in names)
            self._queue.append(thing.__defaults__)
            for name in names:
                if isinstance(scope[name], ModuleType) and _is_users_module(scope[name]):
                    self._visit_module(vars(scope[name]), _names(thing.__code__))

    def _visit_module(self, scope: dict[str, Any], names: set[str]) -> None:
        """What a function may look up in a module of the script."""
        used = [name for name in names if name in scope]
        self._note(lambda: _Identical(tuple(scope.get(name) for name in used)))
        self._queue.extend(scope[name] for name in used)

    def _visit_class(self, kind: type) -> None:
        if not _is_users_class(kind):
            return
        own = [v for k, v in vars(kind).items() if not (k.startswith("__") and isinstance(v, str))]
        self._note(lambda: _Identical(tuple(vars(kind).values())))
        self._queue.extend(getattr(v, "__wrapped__", v) for v in own if not isinstance(v, property))
        self._queue.extend(v for v in own if hasattr(v, "cache_info"))
        self._queue.extend(v.fget for v in own if isinstance(v, property))
        self._queue.extend(kind.__bases__)

    def _visit_object(self, thing: Any) -> None:
        attributes = getattr(thing, "__dict__", None)
        if not isinstance(attributes, dict):
            return
        kind = type(thing)
        if _is_users_class(kind) or isinstance(thing, (Dataset, torch.nn.Module)):
            self._queue.append(attributes)
            self._queue.append(kind)
            return
        # Of an installed package: its attributes may be caches, but generators are generators.
        for value in attributes.values():
            if isinstance(value, _GENERATORS):
                self._visit(value)
            elif isinstance(value, (list, tuple)) and len(value) <= _FEW_ITEMS:
                self._queue.extend(v for v in value if not isinstance(v, _ATOMS))
            elif callable(value):
                self._queue.append(value)


class _Identical:
    """The very objects, not their values; holds them, so that none takes another's address."""

    __slots__ = ("things",)

    def __init__(self, things: tuple[Any, ...]) -> None:
        self.things = things

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identical) or len(self.things) != len(other.things):
            return False
        return all(map(operator.is_, self.things, other.things))

    __hash__ = None  # type: ignore[assignment]


def _same(now: Any, then: Any) -> bool:
    return bool(now == then)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _names(code: CodeType) -> set[str]:
    """Names that the code, and the functions inside it, look up."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _is_users_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        return kind.__module__ == "__main__"
    return not is_foreign(file)


def _is_users_module(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and not is_foreign(file)
