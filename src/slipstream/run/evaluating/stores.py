"""What the names of a function are set to, and whether that was made in it."""

import ast
from collections.abc import Iterator

from slipstream.run.evaluating.source import Function

_COLLECTIONS = {"Counter", "OrderedDict", "defaultdict", "deque"}
_MAKERS = {*_COLLECTIONS, "dict", "float", "int", "list", "set"}
_FRESH = (
    ast.BinOp, ast.Compare, ast.Constant, ast.Dict, ast.DictComp, ast.JoinedStr, ast.List,
    ast.ListComp, ast.Set, ast.SetComp, ast.Tuple, ast.UnaryOp,
)  # fmt: skip
Store = tuple[int, ast.expr | None]


class Stores:
    """By name: line and value of each; None is a value that no expression tells."""

    def __init__(self, function: Function) -> None:
        own = function.args
        arguments = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
        self.arguments = {argument.arg for argument in arguments if argument is not None}
        self._all: dict[str, list[Store]] = {}
        for node in ast.walk(function):
            for name, line, value in _stored(node):
                self._all.setdefault(name, []).append((line, value))

    def is_local(self, name: str) -> bool:
        """Whether the function sets it."""
        return name in self.arguments or name in self._all

    def names(self) -> set[str]:
        """All that are local."""
        return self.arguments | set(self._all)

    def of(self, name: str) -> list[Store]:
        """All that set it in the function's body."""
        return self._all.get(name, [])

    def values(self, name: str) -> list[ast.expr] | None:
        """All that it may be; None where that cannot be told."""
        values = [value for _, value in self.of(name)]
        found = [value for value in values if value is not None]
        is_told = found and len(found) == len(values) and name not in self.arguments
        return found if is_told else None


def is_fresh(value: ast.expr) -> bool:
    """Whether nobody else can have what the expression makes."""
    return isinstance(value, _FRESH) or _is_made(value)


def is_fresh_throughout(value: ast.expr) -> bool:
    """Nor anything in it."""
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.List | ast.Set | ast.Tuple):
        return all(is_fresh_throughout(part) for part in value.elts)
    if isinstance(value, ast.Dict):
        return all(is_fresh_throughout(part) for part in value.values)
    if isinstance(value, ast.ListComp | ast.SetComp):
        return is_fresh_throughout(value.elt)
    if isinstance(value, ast.DictComp):
        return is_fresh_throughout(value.value)
    return _is_made(value) and all(
        isinstance(part, ast.Name) and part.id in _MAKERS
        for part in (value.args if isinstance(value, ast.Call) else [])
    )


def _is_made(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    if isinstance(function, ast.Attribute):
        is_collections = isinstance(function.value, ast.Name) and function.value.id == "collections"
        return is_collections and function.attr in _COLLECTIONS
    return isinstance(function, ast.Name) and function.id in _MAKERS


def _stored(node: ast.AST) -> Iterator[tuple[str, int, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _in_target(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        if node.value is not None:
            yield from _in_target(node.target, node.value)
    elif isinstance(node, ast.For | ast.comprehension):
        yield from _in_target(node.target, None)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _in_target(node.optional_vars, None)
    elif isinstance(node, ast.ExceptHandler) and node.name is not None:
        yield node.name, node.lineno, None
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield (alias.asname or alias.name).partition(".")[0], node.lineno, None


def _in_target(
    target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[str, int, ast.expr | None]]:
    if isinstance(target, ast.Name):
        yield target.id, target.lineno, value
    elif isinstance(target, ast.Starred):
        yield from _in_target(target.value, None)
    elif isinstance(target, ast.Tuple | ast.List):
        parts: list[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts):
            parts = [*value.elts]
        for part, own in zip(target.elts, parts, strict=True):
            yield from _in_target(part, own)
