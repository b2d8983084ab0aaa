"""Finds calls in a source, and changes their arguments."""

import ast
from collections.abc import Callable

from slipstream.run.diff.source import Edit, NoEdit, Source


def called_name(call: ast.Call) -> str:
    """The last name of what is called.

    >>> called_name(ast.parse("torch.optim.SGD(x)").body[0].value)
    'SGD'
    """
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def calls_at(source: Source, line: int, is_it: Callable[[ast.Call], bool]) -> list[ast.Call]:
    """Those at a line that a recording names. Raises `NoEdit` if there is none."""
    found = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and is_it(node)
    ]
    # A call of several lines may hold others.
    found = [call for call in found if line in (call.lineno, call.func.end_lineno)] or found
    if not found:
        raise NoEdit(f"the call at {source.path.name}:{line} is written in another way")
    return found


def call_named(source: Source, line: int, *names: str) -> ast.Call:
    """The only one of such a name at a line."""
    found = calls_at(source, line, lambda call: called_name(call) in names)
    if len(found) > 1:
        raise NoEdit(f"{source.path.name}:{line} has several calls of {called_name(found[0])}")
    return found[0]


def with_keyword(source: Source, call: ast.Call, name: str, value: str) -> Edit | None:
    """The change that gives a call a keyword, or another value for it; None where it has it."""
    if any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(argument, ast.Starred) for argument in call.args
    ):
        where = f"{source.path.name}:{call.lineno}"
        raise NoEdit(f"the arguments of {called_name(call)} at {where} are built elsewhere")
    for keyword in call.keywords:
        if keyword.arg == name:
            if source.text_of(keyword.value) == value:
                return None
            if not isinstance(keyword.value, ast.Constant):
                raise NoEdit(f"{name} at {source.path.name}:{call.lineno} is computed")
            return Edit(source.path, source.start(keyword.value), source.end(keyword.value), value)
    return _behind_the_last(source, call, f"{name}={value}")


def _behind_the_last(source: Source, call: ast.Call, argument: str) -> Edit:
    closing = source.end(call) - 1
    tokens = source.tokens(source.end(call.func), source.end(call))
    _, last, text = tokens[-2]
    if len(tokens) == 2:
        return Edit(source.path, last, last, argument)
    if len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.GeneratorExp):
        raise NoEdit(f"{called_name(call)} at {source.path.name}:{call.lineno} takes a generator")
    if text != ",":
        return Edit(source.path, last, last, f", {argument}")
    if "\n" not in source.text[last:closing]:
        return Edit(source.path, last, last, f" {argument}")
    line = source.text.count("\n", 0, last) + 1
    end = source.line_end(line)
    return Edit(source.path, end, end, f"\n{source.indent(line)}{argument},")
