"""The source of running code."""

import ast
import linecache
from types import CodeType

Scope = ast.Module | ast.FunctionDef


def scope_of(code: CodeType) -> Scope | None:
    """The function or module that was compiled to this; None where it cannot be told."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return None
    if code.co_name == "<module>":
        return tree
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name == code.co_name
        and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno
    ]
    return found[0] if len(found) == 1 else None
