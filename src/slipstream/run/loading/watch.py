"""Notices when a dataset changes: objects that its samples are made from, and what they hold.

Looks at the dataset and all that it leads to, the functions of the script that it calls by name and
their globals. Functions of installed packages are taken to give the same for the same.
"""

import argparse
import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from slipstream.run.loading.looks import (
    MISSING,
    Identical,
    added_builtin,
    as_bytes,
    can_be_written,
    checksum,
    content,
    global_names,
    in_slots,
    is_atom,
    is_users_class,
    is_users_function,
    is_users_module,
    may_use_any_name,
    modules_called,
    names,
    own_values,
    owner_of,
    sampled,
    searched,
    slots_of,
    words,
)
from slipstream.run.loading.mapped import MappedFiles, lies_in_map
from slipstream.run.loading.package_generators import GENERATORS
from slipstream.run.loading.packages import CTYPES, MEMORY, WITH_CONTENTS, inside, known_package
from slipstream.run.loading.questions import BY_OWN_NAMES
from slipstream.run.loading.shared_list import PackedList
from slipstream.run.loading.stamps import lasting_stamp_of, stamp_of

_CODE = (FunctionType, MethodType, functools.partial, property, functools.cached_property,
         staticmethod, classmethod)  # fmt: skip
_WEAK = (weakref.ReferenceType, weakref.ProxyType, weakref.CallableProxyType)
_CONTAINERS = (dict, tuple, frozenset, list, set, deque)
# Of installed packages, but the script's to fill.
_OPEN = (Dataset, torch.nn.Module, argparse.Namespace, SimpleNamespace)
# Not to be used in a process that was forked.
_UNFORKABLE = frozenset({"lmdb", "sqlite3", "multiprocessing", "concurrent", "asyncio"})
_SCRIPTED = (torch.jit.ScriptModule, torch._C.ScriptObject)
_BY_NUMBER = frozenset({"pread", "preadv"})
_MOST_OBJECTS = 2000
_FEW_ITEMS = 256
_MANY_ITEMS = 2_000_000
_ARRAY_BYTES = 1 << 14
_THOROUGH_BYTES = 1 << 24
_CALLED = (FunctionType, type)
_Look = Callable[[], Any]


class _Used(NamedTuple):
    """What a function looks up in modules."""

    names: frozenset[str]
    any_name: bool = False
    searched: frozenset[str] = frozenset()


class Watch:
    """What these objects hold at the moment. `why_not` says why samples cannot be made elsewhere,
    where that shows. Long lists and large arrays are left to `is_same_throughout`, those that are
    longer still, and what lies in the objects of long lists, to nobody. `foreign` are the objects
    of installed packages, and `seen` all that it met.
    """

    def __init__(self, roots: list[Any]) -> None:
        self.why_not = ""
        self.foreign: list[Any] = []
        self.seen: dict[int, Any] = {}
        self._scopes: set[tuple[int, _Used, bool]] = set()
        self._quick: list[tuple[_Look, Any]] = []
        self._thorough: list[tuple[_Look, Any]] = []
        self._weak: dict[int, Any] = {}
        self._addresses: list[int] = []
        self._files: list[tuple[int, int]] = []
        self._queue = deque(roots)
        while self._queue:
            if len(self.seen) > _MOST_OBJECTS:
                self._refuse("it consists of more objects than can be watched")
                break
            thing = self._queue.popleft()
            if issubclass(type(thing), _WEAK):  # a proxy says that it is something else
                self._weak[id(thing)] = thing
                continue
            try:
                self._visit(thing)
            except Exception as error:
                self._refuse(f"{type(thing).__name__} cannot be watched ({type(error).__name__})")
        self._look_at_weak()
        if (self._addresses or self._files) and not self.why_not:
            self._look_at_files()

    def is_same(self) -> bool:
        """Whether nothing has changed that a quick look shows."""
        return _are_same(self._quick)

    def is_same_throughout(self) -> bool:
        """The same with a longer look at long lists and arrays."""
        return self.is_same() and _are_same(self._thorough)

    def _refuse(self, why: str) -> None:
        self.why_not = self.why_not or why

    def _note(self, look: _Look, *, thorough: bool = False) -> None:
        (self._thorough if thorough else self._quick).append((look, look()))

    def _look_at_weak(self) -> None:
        """To look at an object is to keep it, which is for those who refer to it to do."""
        weak = [one for one in self._weak.values() if not _has_ended(one)]
        if not weak:
            return
        held = {id(one) for thing in self.seen.values() for one in weakref.getweakrefs(thing)}
        if not held.issuperset(map(id, weak)):
            self._refuse("it refers weakly to an object that it does not hold")

    def _look_at_files(self) -> None:
        files = MappedFiles(self._addresses, self._files)
        files.watch()
        if files.can_be_written():
            self._refuse("it reads a file that the script has open for writing")
        self._note(files.is_written)
        for path in files.paths:
            lasting_stamp_of(path)  # from here on a change shows
            self._note(functools.partial(stamp_of, path))

    def _visit(self, thing: Any) -> None:
        if isinstance(thing, ModuleType):  # the object's own, whatever it may look up there
            self._visit_module(thing, _Used(frozenset(vars(thing))))
            return
        if isinstance(thing, (BuiltinFunctionType, MethodWrapperType)):
            self._visit_builtin(thing)
            return
        if is_atom(thing) or thing is MISSING or id(thing) in self.seen:
            return
        self.seen[id(thing)] = thing
        kind = type(thing)
        if why := _why_unfit(thing, kind):
            self._refuse(why)
        elif isinstance(thing, torch.Tensor):
            self._visit_tensor(thing)
        elif isinstance(thing, np.ndarray):
            self._visit_array(thing)
        elif isinstance(thing, _CODE):
            self._visit_code(thing)
        elif isinstance(thing, type):
            self._visit_class(thing)
        elif kind is PackedList:
            self._note(thing.is_untouched)
        elif isinstance(thing, _CONTAINERS):
            self._visit_container(thing)
        elif hasattr(kind, "cache_info"):
            self._note(thing.cache_info)
            self._queue.append(getattr(thing, "__wrapped__", None))
        else:
            self._visit_object(thing)

    def _visit_builtin(self, thing: Any) -> None:
        self._queue.append(thing.__self__)  # a generator's `random`, or a module
        if thing in BY_OWN_NAMES:
            self._refuse(f"it calls os.{thing.__name__} by a name of its own")

    def _visit_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.is_inference():
            self._refuse("it holds a tensor of inference mode")
        elif tensor.layout is not torch.strided or tensor.is_nested:
            self._refuse(f"it holds a tensor that is not plain ({tensor.layout})")
        elif tensor.device.type == "cpu" and tensor.is_shared():  # type: ignore[no-untyped-call]
            self._refuse("it holds a tensor in shared memory, which the loop may write to")
        else:
            self._note(lambda: (tensor._version, tensor.data_ptr(), tensor.shape))
            # Not all who write to it count that: `.data`, and arrays that have the same memory.
            if tensor.device.type == "cpu" and tensor.nbytes <= _THOROUGH_BYTES:
                small = tensor.nbytes <= _ARRAY_BYTES
                self._note(lambda: checksum(as_bytes(tensor)), thorough=not small)
            if tensor.device.type == "cpu" and tensor.nbytes > _ARRAY_BYTES:
                self._addresses.append(tensor.data_ptr())
                if tensor.is_contiguous():
                    self._note(lambda: sampled(as_bytes(tensor)))
        attributes = vars(tensor)
        self._note(lambda: Identical(tuple(attributes.values())))
        self._queue.extend([*attributes.values(), type(tensor)])

    def _visit_array(self, array: Any) -> None:
        if isinstance(array, np.memmap) and array.mode not in ("r", "c"):
            self._refuse("it holds a file that is mapped for writing")
            return
        self._note(lambda: (array.ctypes.data, array.shape))
        if array.nbytes and lies_in_map(array):
            self._addresses.append(array.ctypes.data)
        if isinstance(owner_of(array), CTYPES):
            self._refuse("it holds an array in memory of ctypes, which others may write to")
        if array.dtype == np.dtype(object):
            self._visit_items(tuple(array.flat), lambda: array.size, lambda: tuple(array.flat))
        elif array.dtype.hasobject:
            self._queue.extend(array[name] for name in array.dtype.names or ())
        elif array.nbytes <= _ARRAY_BYTES:
            self._note(lambda: checksum(array))
        elif not can_be_written(array):
            return
        else:
            self._note(lambda: sampled(array))
            if array.nbytes <= _THOROUGH_BYTES:
                self._note(lambda: checksum(array), thorough=True)
        if type(array) not in (np.ndarray, np.memmap):
            self.foreign.append(array)
            self._queue.extend([type(array), getattr(array, "__dict__", None)])

    def _visit_container(self, thing: Any) -> None:
        if isinstance(thing, dict):
            self._visit_items(
                tuple(thing.values()), thing.__len__, lambda: (*thing, *thing.values())
            )
            self._queue.extend(_one_of_each_kind(thing) if len(thing) > _FEW_ITEMS else thing)
        elif isinstance(thing, (tuple, frozenset)):
            self._visit_items(tuple(thing))
        else:
            self._visit_items(tuple(thing), thing.__len__, lambda: tuple(thing))
        if is_users_class(type(thing)):
            self._visit_object(thing)

    def _visit_items(
        self, values: tuple[Any, ...], count: _Look | None = None, held: _Look | None = None
    ) -> None:
        """`count` and `held` are of what can change."""
        if len(values) <= _FEW_ITEMS:
            if held is not None:
                self._note(lambda: Identical(held()))
            self._queue.extend(values)
            return
        if count is not None:
            self._note(count)
        if held is not None and len(values) <= _MANY_ITEMS:
            self._note(lambda: Identical(held()), thorough=True)
        self._queue.extend(_one_of_each_kind(values))

    def _visit_code(self, thing: Any) -> None:
        if isinstance(thing, property):
            self._queue.append(thing.fget)
        elif isinstance(thing, functools.cached_property):
            self._queue.append(thing.func)
        elif isinstance(thing, (staticmethod, classmethod)):
            self._queue.append(thing.__func__)
        elif isinstance(thing, functools.partial):
            self._queue.extend([thing.func, thing.args, thing.keywords, vars(thing)])
        elif isinstance(thing, MethodType):
            self._queue.extend([thing.__self__, thing.__func__])
        else:
            self._queue.append(getattr(thing, "__wrapped__", None))
            if is_users_function(thing):
                self._visit_function(thing)
            else:
                held = (*map(content, thing.__closure__ or ()), *vars(thing).values())
                self._queue.extend(filter(_holds_users, held))

    def _visit_function(self, function: FunctionType) -> None:
        cells, scope, attributes = function.__closure__ or (), function.__globals__, vars(function)
        # Those that are not there may come.
        code = function.__code__
        wanted = tuple(global_names(code))

        def held() -> tuple[Any, ...]:
            found = (scope.get(name, added_builtin(name)) for name in wanted)
            own = (function.__code__, function.__defaults__, function.__kwdefaults__)
            return (*own, *map(content, cells), *found, *attributes.values())

        self._note(lambda: Identical(held()))
        values = [value for value in held() if not isinstance(value, (ModuleType, CodeType))]
        self._queue.extend(values)
        if _BY_NUMBER & names(code):
            self._refuse("it reads from files by their numbers")
        used = _Used(names(code) | words(code), may_use_any_name(code), searched(code))
        for name in wanted:
            # A module may be imported in the function.
            for module in modules_called(name, scope):
                self._visit_module(module, used, has_all=name in used.searched)

    def _visit_module(self, module: Any, by: _Used, *, has_all: bool = False) -> None:
        """What a function may look up in a module of the script; where it `has_all`, any of its
        functions and classes.
        """
        if not is_users_module(module) or (id(module), by, has_all) in self._scopes:
            return
        self._scopes.add((id(module), by, has_all))
        scope = vars(module)
        used = tuple(name for name in (*by.names, "__getattr__") if name in scope)
        if by.any_name:
            self._note(lambda: Identical(tuple(scope.values())))
        else:
            self._note(lambda: Identical(tuple(scope.get(name) for name in used)))
            self._note(lambda: len(scope))  # names may come
        for name in used:
            if isinstance(scope[name], ModuleType):
                self._visit_module(scope[name], by, has_all=name in by.searched)
            else:
                self._queue.append(scope[name])
        if has_all:
            self._queue.extend(one for one in scope.values() if isinstance(one, _CALLED))

    def _visit_class(self, kind: type) -> None:
        if not is_users_class(kind):
            return
        self._note(lambda: Identical(own_values(kind)))
        functions = (FunctionType, staticmethod, classmethod, property)
        for name, value in vars(kind).items():
            is_machinery = name.startswith("__") and name.endswith("__")
            if isinstance(value, functions) or not is_machinery:
                self._queue.append(value)
        self._queue.extend([*kind.__bases__, type(kind)])

    def _visit_object(self, thing: Any) -> None:
        if isinstance(thing, np.void):  # a row that can be written
            self._note(thing.tobytes)
            return
        kind = type(thing)
        attributes = getattr(thing, "__dict__", None)
        is_open = is_users_class(kind) or isinstance(thing, _OPEN)
        if is_open and not isinstance(thing, MEMORY) and not known_package(kind):
            if isinstance(attributes, dict):
                self._note(lambda: Identical((type(thing), thing.__dict__)))
                self._queue.append(attributes)
            if slots := slots_of(kind):
                self._note(lambda: Identical(in_slots(thing, slots)))
                self._queue.extend(in_slots(thing, slots))
            self._queue.append(kind)
            if not isinstance(thing, WITH_CONTENTS):
                return
        self.foreign.append(thing)
        found = inside(thing)
        if found.why_not:
            self._refuse(found.why_not)
        for look in found.looks:
            self._note(look)
        self._queue.extend(found.parts)
        self._addresses += found.addresses
        self._files += found.files


def _one_of_each_kind(values: Iterable[Any]) -> Iterable[Any]:
    """Each stands for its like."""
    return {type(value): value for value in values}.values()


def _why_unfit(thing: Any, kind: type) -> str:
    if isinstance(thing, GENERATORS):
        return f"it has a random generator of its own ({kind.__name__})"
    if kind.__module__.partition(".")[0] in _UNFORKABLE:
        return f"it holds {kind.__module__}.{kind.__name__}"
    if kind is np.ufunc and thing.__name__.endswith("(vectorized)"):
        return "it holds a function of numpy.frompyfunc, into which nobody can look"
    if isinstance(thing, _SCRIPTED):
        return f"it holds {kind.__name__}, into which nobody can look"
    return ""


def _holds_users(value: Any) -> bool:
    """Whether it has functions of the script: what a decorator of a package keeps them in."""
    if isinstance(value, (dict, MappingProxyType, list, tuple)):
        values = value if isinstance(value, (list, tuple)) else value.values()
        return len(value) <= _FEW_ITEMS and any(
            isinstance(one, FunctionType) and is_users_function(one) for one in values
        )
    return isinstance(value, FunctionType) and is_users_function(value)


def _has_ended(weak: Any) -> bool:
    return isinstance(weak, weakref.ReferenceType) and weak() is None


def _are_same(looks: list[tuple[_Look, Any]]) -> bool:
    try:
        return all(look() == found for look, found in looks)
    except Exception:  # what can no longer be looked at has changed
        return False
