"""Text that is made of values: a tensor with a graph says so, unless it is one number."""

import ast
import re
import string

_PERCENT = re.compile(r"%(?:\(\w*\))?[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?([a-zA-Z%])")


def shows_numbers_alone(text: ast.expr) -> bool:
    """Whether a string asks for a number in each of its `{}`: `{:.3f}`."""
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return False
    try:
        fields = list(string.Formatter().parse(text.value))
    except ValueError:
        return False
    return all(field is None or (spec and not shown) for _, field, spec, shown in fields)


def is_percent_of_numbers(node: ast.BinOp) -> bool:
    """`"%.3f" % value`."""
    if not isinstance(node.left, ast.Constant) or not isinstance(node.left.value, str):
        return False
    return not {"s", "r", "a"} & set(_PERCENT.findall(node.left.value))


def is_percent(node: ast.AST) -> bool:
    """Text, as far as it shows."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and (isinstance(node.left, ast.JoinedStr) or _is_text(node.left))
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
