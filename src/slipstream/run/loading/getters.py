"""Reads a `__getitem__` that does nothing but look rows up: `return self.x[i], self.y[i]`."""

import dis
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True)
class Row:
    """`self.NAME[index]`."""

    name: str


@dataclass(frozen=True)
class Parts:
    """A tuple, a list or a dict of expressions; `keys` are those of a dict."""

    kind: type
    items: tuple[Any, ...]
    keys: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Attribute:
    name: str


_SELF, _INDEX = object(), object()
_NOTHING = ("RESUME", "NOP", "CACHE", "PRECALL", "EXTENDED_ARG", "NOT_TAKEN")
_LOADS = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST",
          "LOAD_FAST_BORROW_LOAD_FAST_BORROW")  # fmt: skip


def rows_of(getter: Any) -> Row | Parts | None:
    """What the function returns, if it can do nothing else; None where it is more than this.

    >>> def get(self, index):
    ...     return self.x[index], self.y[index]
    >>> rows_of(get)
    Parts(kind=<class 'tuple'>, items=(Row(name='x'), Row(name='y')), keys=())
    """
    if not isinstance(getter, FunctionType) or getter.__code__.co_argcount != 2:
        return None
    code = getter.__code__
    if code.co_kwonlyargcount or code.co_flags & 0x2C or getter.__closure__:
        return None  # *args, **kwargs, a generator, or names from outside
    return _returned(code)


@lru_cache  # it takes a millisecond, and some loops ask in every step
def _returned(code: CodeType) -> Row | Parts | None:
    known = dict(zip(code.co_varnames, (_SELF, _INDEX), strict=False))
    try:
        found = _evaluate(list(dis.get_instructions(code)), known)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    return found if _is_rows(found) else None


def _evaluate(instructions: list[Any], known: dict[str, Any]) -> Any:
    stack: list[Any] = []
    for step in instructions:
        name, value = step.opname, step.argval
        if name in _NOTHING:
            continue
        if name == "RETURN_VALUE":
            return stack.pop()
        if name in _LOADS:
            names = value if isinstance(value, tuple) else (value,)
            stack += [known[variable] for variable in names]
        elif name == "STORE_FAST":
            known[value] = stack.pop()
        elif name == "LOAD_CONST":
            stack.append(_Constant(value))
        elif name.startswith("BUILD_"):
            stack.append(_build(name, value, stack))
        else:
            stack.append(_look_up(step, stack))
    raise ValueError("no return")


def _look_up(step: Any, stack: list[Any]) -> Any:
    name, last = step.opname, stack.pop()
    if name == "LOAD_ATTR" and last is _SELF:
        return _Attribute(step.argval)
    is_item = name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == "[]")
    if is_item and last is _INDEX and isinstance(stack[-1], _Attribute):
        return Row(stack.pop().name)
    raise ValueError(name)


def _build(name: str, count: int, stack: list[Any]) -> Parts:
    if name == "BUILD_TUPLE":
        return Parts(tuple, _pop(stack, count))
    if name == "BUILD_LIST":
        return Parts(list, _pop(stack, count))
    if name == "BUILD_CONST_KEY_MAP":
        keys = stack.pop().value
        return Parts(dict, _pop(stack, count), keys)
    if name == "BUILD_MAP":
        pairs = _pop(stack, 2 * count)
        return Parts(dict, pairs[1::2], tuple(key.value for key in pairs[::2]))
    raise ValueError(name)


@dataclass(frozen=True)
class _Constant:
    value: Any


def _pop(stack: list[Any], count: int) -> tuple[Any, ...]:
    if count > len(stack) or count == 0:
        raise ValueError("stack")
    items = tuple(stack[-count:])
    del stack[-count:]
    return items


def _is_rows(found: Any) -> bool:
    if isinstance(found, Parts):
        keys_fit = found.kind is not dict or len(set(found.keys)) == len(found.items)
        return keys_fit and all(_is_rows(item) for item in found.items)
    return isinstance(found, Row)
