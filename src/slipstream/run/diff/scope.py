"""What the names of a file lead to, as far as its source alone tells: nothing of it is run."""

import ast
import importlib
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from slipstream.run.diff.source import Source

_PACKAGES = ("math", "torch")
_LAYERS = "torch.nn.modules."


def names_of(source: Source) -> dict[str, Any]:
    """Functions, modules and functions of torch, and layers and losses that are made of it once."""
    scope: dict[str, Any] = {}
    code = compile(source.text, str(source.path), "exec", dont_inherit=True)
    functions = {part.co_name: part for part in code.co_consts if isinstance(part, CodeType)}
    for node in source.tree.body:
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
            scope.update(_imported(node))
        elif isinstance(node, ast.FunctionDef) and not node.decorator_list:
            if node.name in functions:  # one with type parameters is inside of another
                scope[node.name] = FunctionType(functions[node.name], scope)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            layer = _layer(node.value.func, scope)
            if layer is not None and isinstance(node.targets[0], ast.Name):
                scope[node.targets[0].id] = layer
    for name, count in Counter(_stored(source.tree)).items():
        if count > 1:
            scope.pop(name, None)
    return scope


def _stored(tree: ast.Module) -> Iterator[str]:
    """Names that are set in the file itself, or by functions that say `global`, those twice."""
    # `import torch` and `import torch.nn` name the same.
    yield from (name for name, _ in {pair for node in tree.body for pair in _imports(node)})
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from (*node.names, *node.names)
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif node not in tree.body:
            yield from (name for name, _ in _imports(node))
        waiting += ast.iter_child_nodes(node)


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names, and what they are to be."""
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"
    elif isinstance(node, ast.Import):
        for alias in node.names:
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or whole, whole


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Any]]:
    for alias in node.names:
        whole = alias.name if isinstance(node, ast.Import) else node.module or ""
        if whole.partition(".")[0] not in _PACKAGES:
            continue
        try:
            module = importlib.import_module(whole)
            if isinstance(node, ast.ImportFrom):
                yield alias.asname or alias.name, getattr(module, alias.name)
            elif alias.asname:
                yield alias.asname, module
            else:
                top = whole.partition(".")[0]
                yield top, importlib.import_module(top)
        except (ImportError, AttributeError):
            continue


def _layer(made: ast.expr, scope: dict[str, Any]) -> torch.nn.Module | None:
    """One of the class that is called, empty."""
    kind = _value(made, scope)
    if not isinstance(kind, type) or not issubclass(kind, torch.nn.Module):
        return None
    if not f"{kind.__module__}.".startswith(_LAYERS) or issubclass(kind, torch.nn.Sequential):
        return None
    layer: torch.nn.Module = kind.__new__(kind)
    torch.nn.Module.__init__(layer)
    return layer


def _value(node: ast.expr, scope: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, scope), node.attr, None)
    return None
