"""Whether a batch may change while a copy of it is under way.

Page-locked memory is read by the device when that comes to it, so a copy that nobody waits for is
safe only where nothing is done with its source any more.
"""

import ast
from collections.abc import Iterator
from typing import TypeGuard

from slipstream.run.diff.calls import called_name
from slipstream.run.diff.source import NoEdit, Source

_COPIES = ("to", "cuda")
_ASKS = {"shape", "dtype", "device", "ndim", "size", "dim", "numel", "keys"}
_PARTS = {"items", "values"}
_READERS = ("len", "enumerate", "print", "type", "isinstance")
# Methods that may give the same memory.
_VIEWS = {
    "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "expand",
    "contiguous", "detach", "float", "double", "half", "long", "int",
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def check_source(source: Source, call: ast.Call) -> None:
    """Of a `.to(…)` or `.cuda(…)`. Raises `NoEdit` where what it copies is used otherwise."""
    assert isinstance(call.func, ast.Attribute)
    begin = _root(call.func.value)
    if begin is None:
        return  # what has no name is used once
    scope = _scope(source, call)
    copies = _copies(source, scope)
    waiting, seen = [begin], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if isinstance(scope, _Function) and name in _given(scope):
            where = f"{source.path.name}:{call.lineno}"
            raise NoEdit(f"{name} at {where} is the caller's, and may change while it is copied")
        waiting += _taken_from(scope, name)
        for use in _uses(scope, name):
            if name not in copies:
                waiting += _names_it_gets(source, use)
            elif use.lineno < copies[name]:  # from then on the name is the copy
                if name != begin:
                    waiting += _names_it_gets(source, use)
                elif others := _other_names(source, use):
                    raise NoEdit(
                        f"{others[0]} at {source.path.name}:{use.lineno} is {name} as well, and may"
                        " change while it is copied"
                    )


def _copies(source: Source, scope: ast.AST) -> dict[str, int]:
    """Names that are the copies from a line on: `x = x.to(device)`."""
    found: dict[str, int] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and called_name(node) in _COPIES:
            statement = source.statement(node)
            if isinstance(statement, ast.Assign):
                used = {part.id for part in ast.walk(statement.value) if _is_load(part)}
                for name in used.intersection(_targets(statement)):
                    found[name] = min(statement.lineno, found.get(name, statement.lineno))
    return found


def _uses(scope: ast.AST, name: str) -> Iterator[ast.Name]:
    """Of that name, but not of the same name in functions that have their own."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _Function) and name in _own_names(node):
            continue
        if isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == name:
            assert isinstance(node.target, ast.Name)
            yield node.target
        if _is_load(node) and node.id == name:
            yield node
        waiting += ast.iter_child_nodes(node)


def _own_names(function: _Function) -> set[str]:
    outer = (
        name
        for node in ast.walk(function)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    )
    return _given(function).union(_stored(function)).difference(outer)


def _given(function: _Function) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _is_load(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _other_names(source: Source, name: ast.Name) -> list[str]:
    """That a name has been given to before it is sent."""
    node = _whole(source, name)
    above = source.parent(node)
    if not isinstance(above, ast.Assign) or node is not above.value:
        return []
    return [other for other in _targets(above) if other != name.id]


def _names_it_gets(source: Source, name: ast.Name) -> list[str]:
    """Where a name is used: the names that hold the same from there on."""
    node = _whole(source, name)
    above = source.parent(node)
    if isinstance(above, ast.Attribute) and above.attr in (*_COPIES, *_ASKS):
        if isinstance(above.ctx, ast.Load):
            return []
    elif isinstance(above, ast.Call) and called_name(above) in _READERS:
        return []
    elif isinstance(above, ast.For | ast.comprehension) and node is above.iter:
        return list(_stored(above.target))
    elif isinstance(above, ast.Assign) and node is above.value:
        return list(_targets(above))
    raise _changed(source, name)


def _changed(source: Source, name: ast.Name) -> NoEdit:
    where = f"{source.path.name}:{name.lineno}"
    return NoEdit(f"{name.id} is used at {where} as well, and may change while it is copied")


def _taken_from(scope: ast.AST, name: str) -> Iterator[str]:
    """Names of what it was taken out of."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and name in set(_targets(node)):
            taken: ast.expr | None = node.value
        elif isinstance(node, ast.For | ast.comprehension) and name in set(_stored(node.target)):
            taken = node.iter
            if isinstance(taken, ast.Call) and isinstance(taken.func, ast.Attribute):
                taken = taken.func.value if taken.func.attr in _PARTS else None
            elif isinstance(node, ast.For):
                continue  # a loader
        else:
            continue
        root = None if taken is None else _root(taken)
        if root is not None:
            yield root


def _root(node: ast.expr) -> str | None:
    """The name that an item or a view is taken out of.

    >>> _root(ast.parse("batch['image'][0].view(-1)", mode="eval").body)
    'batch'
    """
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Subscript | ast.Attribute):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in _VIEWS:
                return None
            node = node.func.value
        else:
            return None
    return node.id


def _whole(source: Source, node: ast.expr) -> ast.expr:
    """The longest item or view that is taken out of a name here."""
    while True:
        above = source.parent(node)
        if isinstance(above, ast.Subscript) and node is above.value:
            if not isinstance(above.ctx, ast.Load):
                return node
            node = above
        elif isinstance(above, ast.Attribute) and above.attr not in {*_COPIES, *_ASKS}:
            call = source.parent(above)
            is_called = isinstance(call, ast.Call) and call.func is above
            if is_called == (above.attr not in _VIEWS | _PARTS):
                return node
            if not isinstance(above.ctx, ast.Load):
                return node
            node = call if is_called and isinstance(call, ast.Call) else above
        else:
            return node


def _stored(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


def _targets(statement: ast.Assign) -> Iterator[str]:
    for target in statement.targets:
        yield from _stored(target)


def _scope(source: Source, node: ast.AST) -> ast.AST:
    above = source.parent(node)
    while above is not None and not isinstance(above, _Function):
        above = source.parent(above)
    return source.tree if above is None else above
