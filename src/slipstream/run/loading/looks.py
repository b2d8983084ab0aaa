"""What a `Watch` looks at: names that code looks up, and what objects hold and may change."""

import builtins
import dis
import functools
import operator
import re
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch

from slipstream.doctor.record.places import is_foreign, is_users

ATOMS = (
    int, float, complex, bool, str, bytes, type(None), type(...), range, slice, np.generic,
    np.dtype, torch.dtype, torch.device, PurePath, BuiltinFunctionType,
    GetSetDescriptorType, MemberDescriptorType, type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
MISSING = object()
_BUILTINS = frozenset(vars(builtins))
_GLOBALS = ("_GLOBAL", "_GLOBALS", "_NAME")  # ends of what instructions are called
# What reaches globals, or a module, by a string.
_BY_STRINGS = frozenset({"globals", "eval", "exec", "modules", "import_module", "__import__"})
# What reaches what a module holds by a name that need not stand in the code.
_BY_ANY_NAME = _BY_STRINGS | {"getattr", "vars", "__dict__", "attrgetter", "methodcaller"}
_SAMPLES = 256  # of an array
_RUNS_TEXT = frozenset({"eval", "exec"})
_BETWEEN = frozenset({"PUSH_NULL", "CACHE", "PRECALL", "RESUME", "NOP"})
_WORD = re.compile(r"[^\W\d]\w*")


class Identical:
    """The very objects, not their values; holds them, so that none takes another's address."""

    __slots__ = ("things",)

    def __init__(self, things: tuple[Any, ...]) -> None:
        self.things = things

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identical) or len(self.things) != len(other.things):
            return False
        return all(map(operator.is_, self.things, other.things))

    __hash__ = None  # type: ignore[assignment]


def is_atom(thing: Any) -> bool:
    """Whether there is nothing in it that could change: a number, a text, a name."""
    if not isinstance(thing, ATOMS) or isinstance(thing, np.void):
        return False
    return not (hasattr(thing, "__dict__") and is_users_class(type(thing)))


def content(cell: Any) -> Any:
    """Of a variable that a function has from around it."""
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return MISSING


def added_builtin(name: str) -> Any:
    """What everybody finds under a name since somebody has put it there."""
    return MISSING if name in _BUILTINS else vars(builtins).get(name, MISSING)


def modules_called(name: str, scope: dict[str, Any]) -> Iterator[Any]:
    """What a function may mean by it, which may import it, from its own package as well."""
    yield scope.get(name)
    yield sys.modules.get(name)
    package = scope.get("__package__") or ""
    while package:
        yield sys.modules.get(f"{package}.{name}" if name else package)
        package = package.rpartition(".")[0]


@functools.lru_cache(maxsize=4096)
def names(code: CodeType) -> frozenset[str]:
    """All names in the code and in the functions inside it, of attributes as well."""
    return frozenset(code.co_names).union(*map(names, _inner(code)))


@functools.lru_cache(maxsize=4096)
def global_names(code: CodeType) -> frozenset[str]:
    """Names that the code, and the functions inside it, look up or set among the globals; where it
    may do so by strings, such as `globals()["size"]`, these as well.
    """
    own = (i.argval for i in dis.get_instructions(code) if i.opname.endswith(_GLOBALS))
    by_strings = words(code) if _BY_STRINGS & names(code) else frozenset[str]()
    return by_strings.union(own, *map(global_names, _inner(code)))


@functools.lru_cache(maxsize=4096)
def words(code: CodeType) -> frozenset[str]:
    """Strings in the code, and in the functions inside it, that are names: `getattr` looks up by
    those. Of text that may be run, all words.
    """
    texts = _strings(code.co_consts)
    if not _RUNS_TEXT & names(code):
        texts = (text for text in texts if text.replace(".", "_").isidentifier())
    own = (word for text in texts for word in _WORD.findall(text))
    return frozenset(own).union(*map(words, _inner(code)))


def may_use_any_name(code: CodeType) -> bool:
    """Whether it may look up what a module holds by names that do not stand in it."""
    return bool(_BY_ANY_NAME & names(code))


@functools.lru_cache(maxsize=4096)
def searched(code: CodeType) -> frozenset[str]:
    """What it looks into by names that do not stand in it: `ops` of `getattr(ops, name)`."""
    steps = [i for i in dis.get_instructions(code) if i.opname not in _BETWEEN]
    found = set()
    for number, step in enumerate(steps[:-1]):
        if step.opname.startswith("LOAD_") and step.argval in ("getattr", "vars"):
            end = number + 1
            while end + 1 < len(steps) and steps[end + 1].opname == "LOAD_ATTR":
                end += 1
            if end + 1 == len(steps) or steps[end + 1].opname != "LOAD_CONST":
                found.add(steps[end].argval)
        elif steps[number + 1].argval == "__dict__":
            found.add(step.argval)
    return frozenset(name for name in found if isinstance(name, str)).union(
        *map(searched, _inner(code))
    )


def _strings(constants: Any) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from _strings(constant)


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def checksum(array: Any) -> int:
    """Of an array of any shape that holds no objects."""
    if not array.nbytes:
        return 0
    return zlib.crc32(np.asarray(array).ravel(order="K").view(np.uint8))


def as_bytes(tensor: torch.Tensor) -> Any:
    """An array of what a tensor of the processor holds, whatever its type."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy()


def sampled(array: Any) -> bytes:
    """Some of its values, from all over it: a change of the whole shows."""
    return bytes(array.flat[:: array.size // _SAMPLES + 1].tobytes())


def owner_of(array: Any) -> Any:
    """Whose memory an array has."""
    while isinstance(array, (np.ndarray, memoryview)):
        array = array.obj if isinstance(array, memoryview) else array.base
    return array


def can_be_written(array: Any) -> bool:
    """Whether somebody can write to the memory of an array."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    try:
        return array is not None and not memoryview(array).readonly
    except TypeError:  # it does not say
        return True


def own_values(kind: type) -> tuple[Any, ...]:
    """What the class itself holds; pickle notes something down in every class."""
    return tuple(value for name, value in vars(kind).items() if name != "__slotnames__")


def slots_of(kind: type) -> list[Any]:
    """Descriptors of the `__slots__` that a class of the script has."""
    bases = [base for base in kind.__mro__ if "__slots__" in vars(base) and is_users_class(base)]
    found = (value for base in bases for value in vars(base).values())
    return [value for value in found if isinstance(value, MemberDescriptorType)]


def in_slots(thing: Any, slots: list[Any]) -> tuple[Any, ...]:
    """What an object holds there."""
    return tuple(_in_slot(thing, slot) for slot in slots)


def _in_slot(thing: Any, slot: Any) -> Any:
    try:
        return slot.__get__(thing)
    except AttributeError:
        return MISSING


def is_users_class(kind: type) -> bool:
    """Whether the script, or a module beside it, defines it."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        return kind.__module__ == "__main__"
    return not is_foreign(file)


def is_users_module(thing: Any) -> bool:
    """Whether it is a module that lies beside the script."""
    if not isinstance(thing, ModuleType):
        return False
    file = vars(thing).get("__file__")
    return not is_foreign(file) if isinstance(file, str) else _is_made_by_hand(thing)


def is_users_function(function: FunctionType) -> bool:
    """Whether the script, or a module beside it, defines it; from text, too."""
    code = function.__code__
    if code.co_filename.startswith("<"):
        scope = function.__globals__
        module = sys.modules.get(scope.get("__name__", ""))
        if module is not None and vars(module) is scope:
            return module.__name__ == "__main__" or is_users_module(module)
    return is_users(code)


def _is_made_by_hand(module: ModuleType) -> bool:
    """Whether it is of no file and of nobody who finds modules."""
    is_found = getattr(module, "__spec__", None) is not None
    return not is_found and type(module) is ModuleType and module.__name__ != "builtins"
