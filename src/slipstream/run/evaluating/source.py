"""The source of a function."""

import ast
import linecache
from functools import lru_cache
from types import CodeType

Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_of(code: CodeType) -> Function | None:
    """None where it is not to be found, or could be one of two."""
    found = [
        node
        for node in _functions("".join(linecache.getlines(code.co_filename)))
        if node.name == code.co_name
        and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno
    ]
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=64)
def _functions(text: str) -> list[Function]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, Function)]
