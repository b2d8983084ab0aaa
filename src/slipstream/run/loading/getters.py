"""Reads a `__getitem__` that does nothing but look rows up and convert their numbers, such as
`return {"x": torch.tensor(self.x[i], dtype=torch.float), "y": self.y[i]}`.
"""

import ast
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from slipstream.run.evaluating.source import function_of


@dataclass(frozen=True)
class Turn:
    """A conversion: `name` is a function's or a method's, `dtype` what it is told, if anything;
    both as they are written, modules included: `("torch", "float32")`.
    """

    name: tuple[str, ...]
    dtype: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """`self.NAME[index]`, or with as many places as `dims`: `self.NAME[index, :]`; converted by
    these, one after the other.
    """

    name: str
    dims: int = 1
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Parts:
    """A tuple, a list or a dict of expressions; `keys` are those of a dict."""

    kind: type
    items: tuple[Any, ...]
    keys: tuple[Any, ...] = ()


class _Unknown(Exception):
    """Something else is done here."""


_FUNCTIONS = ("tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor")
_NUMBERS = ("int", "float")
_METHODS = ("float", "double", "long", "int", "bool", "to", "type", "astype", "item")
_TAKES_DTYPE = ("tensor", "as_tensor", "to", "type", "astype")


def rows_of(getter: Any) -> Row | Parts | None:
    """What the function returns, if it can do nothing else; None where it is more than this.

    >>> def get(self, index):
    ...     return self.x[index], self.y[index].float()
    >>> rows_of(get)
    Parts(kind=<class 'tuple'>, items=(Row(name='x', dims=1, turns=()), Row(name='y', dims=1, \
turns=(Turn(name=('', 'float'), dtype=()),))), keys=())
    """
    if not isinstance(getter, FunctionType) or getter.__code__.co_argcount != 2:
        return None
    code = getter.__code__
    if code.co_kwonlyargcount or code.co_flags & 0x2C or getter.__closure__:
        return None  # *args, **kwargs, a generator, or names from outside
    return _returned(code)


@lru_cache  # it takes milliseconds, and some loops ask in every step
def _returned(code: CodeType) -> Row | Parts | None:
    try:
        function = _source_of(code)
        return _Reader(*(argument.arg for argument in function.args.args)).read(function.body)
    except (_Unknown, OSError, TypeError, ValueError, SyntaxError):
        return None


def _source_of(code: CodeType) -> ast.FunctionDef:
    """Of what is compiled: the file may have changed since."""
    function = function_of(code)
    text = "".join(linecache.getlines(code.co_filename))
    compiled = _codes_in(compile(text, code.co_filename, "exec", dont_inherit=True))
    is_same = any(_meaning(other) == _meaning(code) for other in compiled)
    if not is_same or not isinstance(function, ast.FunctionDef):
        raise _Unknown
    return function


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_in(constant)


def _meaning(code: CodeType) -> tuple[Any, ...]:
    return code.co_firstlineno, code.co_code, code.co_names, code.co_varnames, code.co_consts


class _Reader:
    """Of one function; knows what its names stand for."""

    def __init__(self, own: str, index: str) -> None:
        self._self, self._index = own, index
        self._known: dict[str, Row | Parts] = {}

    def read(self, body: Sequence[ast.stmt]) -> Row | Parts:
        for statement in body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                return self._value(statement.value)
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
            elif not (_is_text(statement) or self._turns_index_into_a_number(statement)):
                raise _Unknown
        raise _Unknown

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        names, values = [target], [value]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            names, values = target.elts, value.elts
        if len(names) != len(values):
            raise _Unknown
        found = [self._value(one) for one in values]
        for name, one in zip(names, found, strict=True):
            if not isinstance(name, ast.Name) or name.id in (self._self, self._index):
                raise _Unknown
            self._known[name.id] = one

    def _turns_index_into_a_number(self, statement: ast.stmt) -> bool:
        """`if torch.is_tensor(i): i = i.tolist()`, which is nothing to a number."""
        index = self._index
        return isinstance(statement, ast.If) and ast.unparse(statement) == (
            f"if torch.is_tensor({index}):\n    {index} = {index}.tolist()"
        )

    def _value(self, node: ast.expr) -> Row | Parts:
        if isinstance(node, ast.Name) and node.id in self._known:
            return self._known[node.id]
        if isinstance(node, ast.Subscript):
            return self._row(node)
        if isinstance(node, (ast.Tuple, ast.List)) and node.elts:
            kind = tuple if isinstance(node, ast.Tuple) else list
            return Parts(kind, tuple(self._value(item) for item in node.elts))
        if isinstance(node, ast.Dict) and node.keys:
            keys = tuple(key.value for key in node.keys if isinstance(key, ast.Constant))
            if len(set(keys)) != len(node.values):
                raise _Unknown
            return Parts(dict, tuple(self._value(item) for item in node.values), keys)
        if isinstance(node, ast.Call):
            return self._turned(node)
        raise _Unknown

    def _row(self, node: ast.Subscript) -> Row:
        whole, places = node.value, node.slice
        given = places.elts if isinstance(places, ast.Tuple) else [places]
        is_own = isinstance(whole, ast.Attribute) and _name(whole.value) == (self._self,)
        if not is_own or not given or _name(given[0]) != (self._index,):
            raise _Unknown
        if any(ast.unparse(place) != ":" for place in given[1:]):
            raise _Unknown
        return Row(whole.attr, len(given))  # type: ignore[attr-defined]

    def _turned(self, node: ast.Call) -> Row:
        """`torch.tensor(ROW, dtype=…)`, `int(ROW)`, `ROW.float()`."""
        name, given = _name(node.func), list(node.args)
        functions = _NUMBERS if len(name) == 1 else _FUNCTIONS
        if name and name[-1] in functions and given:
            row = self._value(given.pop(0))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            name, row = ("", node.func.attr), self._value(node.func.value)
        else:
            raise _Unknown
        given += [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
        is_told = bool(given)
        if len(given) > 1 or any(keyword.arg != "dtype" for keyword in node.keywords):
            raise _Unknown
        if not isinstance(row, Row) or (is_told and name[-1] not in _TAKES_DTYPE):
            raise _Unknown
        dtype = _dtype(given[0]) if is_told else ()
        return replace(row, turns=(*row.turns, Turn(name, dtype)))


def _name(node: ast.expr) -> tuple[str, ...]:
    """Of `name`, or of `module.name`; nothing for anything else."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id, node.attr
    return ()


def _dtype(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ("", node.value)
    name = _name(node)
    if len(name) != 2:
        raise _Unknown
    return name


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
