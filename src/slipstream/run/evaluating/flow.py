"""Whether a function keeps to itself what a model gives it, by its source."""

import ast
import linecache
from collections.abc import Iterator
from types import CodeType

_Function = ast.FunctionDef | ast.AsyncFunctionDef

# A function with one of these has to do with gradients.
_LEARNS = {
    "autograd", "backward", "enable_grad", "grad", "grad_fn", "register_hook", "requires_grad",
    "requires_grad_", "retain_grad", "set_grad_enabled", "step", "vjp", "jacobian", "hessian",
}  # fmt: skip
# What these give has no graph, with gradients on or off.
_PLAIN_METHODS = {
    "argmax", "argmin", "argsort", "detach", "dim", "item", "nelement", "numel", "numpy", "size",
    "tolist",
}  # fmt: skip
_PLAIN_FUNCTIONS = {"bool", "float", "int", "isinstance", "len", "print", "range", "str", "type"}
_PLAIN_ATTRIBUTES = {"data", "device", "dtype", "ndim", "shape"}
_KEEPERS = {"add", "append", "extend", "insert", "setdefault", "update"}
_ROUNDS = 10


def keeps_to_itself(code: CodeType, line: int) -> bool:
    """Whether what is called at this line of a function is not returned, kept or learned from, as
    far as the function's own source tells. False where that cannot be told.
    """
    function = _function(code)
    if function is None or isinstance(function, ast.AsyncFunctionDef):
        return False
    if any(_is_trouble(node) for node in ast.walk(function)):
        return False
    return _Flow(function, line).stays()


def _function(code: CodeType) -> _Function | None:
    lines = linecache.getlines(code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == code.co_name
        and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno
    ]
    return found[0] if len(found) == 1 else None


def _is_trouble(node: ast.AST) -> bool:
    if isinstance(node, ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal | ast.Lambda):
        return True
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return name in _LEARNS


class _Flow:
    """Follows values from one line through the names of a function, until no more are found."""

    def __init__(self, function: ast.FunctionDef, line: int) -> None:
        self._nodes = list(ast.walk(function))
        self._inner = [n for n in self._nodes if isinstance(n, _Function) and n is not function]
        self._line = line
        self._names: set[str] = set()
        self._escapes = False

    def stays(self) -> bool:
        if self._inner:
            return False
        for _ in range(_ROUNDS):
            before = set(self._names)
            for node in self._nodes:
                self._follow(node)
            if self._escapes:
                return False
            if self._names == before:
                return True
        return False

    def _follow(self, node: ast.AST) -> None:
        if isinstance(node, ast.Return) and node.value is not None:
            self._escapes |= self._has(node.value)
        elif isinstance(node, ast.Assign) and self._has(node.value):
            for target in node.targets:
                self._mark(target)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
            if node.value is not None and self._has(node.value):
                self._mark(node.target)
        elif isinstance(node, ast.For | ast.comprehension) and self._has(node.iter):
            self._mark(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            if self._has(node.context_expr):
                self._mark(node.optional_vars)
        elif isinstance(node, ast.Call):
            self._follow_call(node)

    def _follow_call(self, node: ast.Call) -> None:
        """What is put into a container is in it."""
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in _KEEPERS:
            return
        if any(self._has(value) for value in _given(node)):
            self._mark(function.value)

    def _mark(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._names.add(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._mark(part)
        elif isinstance(target, ast.Starred | ast.Subscript):
            self._mark(target.value)
        else:
            self._escapes = True  # an attribute: who knows who else reads it

    def _has(self, node: ast.expr) -> bool:
        """Whether the value of an expression may have a graph of the model's."""
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Constant | ast.Compare | ast.JoinedStr):
            return False
        if isinstance(node, ast.Attribute):
            return node.attr not in _PLAIN_ATTRIBUTES and self._has(node.value)
        if isinstance(node, ast.Call):
            return self._has_call(node)
        return any(self._has(child) for child in _expressions(node))

    def _has_call(self, node: ast.Call) -> bool:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _PLAIN_METHODS:
            return False
        if isinstance(function, ast.Name) and function.id in _PLAIN_FUNCTIONS:
            return False
        if node.lineno <= self._line <= (node.end_lineno or node.lineno):
            return True
        return self._has(function) or any(self._has(value) for value in _given(node))


def _given(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        else:
            yield from _expressions(child)
