"""Whether a copy in the source can only go from the processor to a device.

Back, a copy that nobody waits for would be read before it is there.
"""

import ast
from typing import TypeGuard

from slipstream.run.diff.calls import called_name
from slipstream.run.diff.source import NoEdit, Source

_TRAINS = {"backward", "eval", "train"}


def check_direction(source: Source, call: ast.Call) -> None:
    """Of a `.to(…)` or `.cuda(…)` that was seen to copy to a device. Raises `NoEdit` where it may
    do something else at other times.
    """
    where = f"{source.path.name}:{call.lineno}"
    others = [
        node
        for node in ast.walk(source.statement(call))
        if isinstance(node, ast.Call) and called_name(node) in ("to", "cuda", "cpu")
    ]
    if len({_arguments(source, node) for node in others}) > 1:
        raise NoEdit(f"{where} copies to several places")
    if any(map(_pins, ast.walk(source.tree))):
        raise NoEdit(f"{source.path.name} pins memory itself, and may write to it while it is read")
    if any(_does_not_wait(node) and _to(node) != _to(call) for node in ast.walk(source.tree)):
        raise NoEdit(f"{source.path.name} may rely on {where} to wait for another copy")
    if not call.args or not isinstance(call.args[0], ast.Name):
        return
    function = _function_with(source, call, call.args[0].id)
    if function is not None and not any(
        isinstance(node, ast.Call) and called_name(node) in _TRAINS for node in ast.walk(function)
    ):
        raise NoEdit(f"{function.name} at {where} may be asked to copy back as well")


def _pins(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or called_name(node) == "DataLoader":
        return False
    return called_name(node) == "pin_memory" or any(k.arg == "pin_memory" for k in node.keywords)


def _does_not_wait(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    if any(keyword.arg == "non_blocking" for keyword in node.keywords):
        return True
    is_given = any(isinstance(arg, ast.Constant) and arg.value is True for arg in node.args[1:])
    return is_given and called_name(node) in ("to", "cuda", "copy_")


def _to(call: ast.Call) -> str:
    """Where it copies to, as written."""
    if called_name(call) not in ("to", "cuda"):
        return "elsewhere"
    named = [keyword.value for keyword in call.keywords if keyword.arg == "device"]
    return ast.dump([*call.args[:1], *named, ast.Constant("cuda")][0])


def _arguments(source: Source, call: ast.Call) -> str:
    return source.text[source.end(call.func) : source.end(call)]


def _function_with(source: Source, node: ast.AST, name: str) -> ast.FunctionDef | None:
    """The innermost function around it that is given something of this name."""
    above = source.parent(node)
    while above is not None:
        if isinstance(above, ast.FunctionDef):
            given = [*above.args.posonlyargs, *above.args.args, *above.args.kwonlyargs]
            if any(argument.arg == name for argument in given):
                return above
        above = source.parent(above)
    return None
