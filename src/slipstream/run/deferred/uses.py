"""Whether all that a script does with a value is to add it up and to show it, by its source."""

import ast
import linecache
from types import CodeType

_Scope = ast.Module | ast.FunctionDef
_Inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_SHOWS = {"print", "str", "repr", "format", "float", "int", "bool", "round"}
_LOOKS = {"locals", "globals", "vars", "eval", "exec"}  # at names that we do not see


def only_summed_and_shown(code: CodeType, line: int) -> bool:
    """Of what `.item()` gives at this line. False where it cannot be told."""
    scope = _scope(code)
    if scope is None:
        return False
    uses = _Uses(scope)
    calls = [
        node
        for node in uses.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "item"
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return bool(calls) and all(uses.is_fine(call) for call in calls)


def _scope(code: CodeType) -> _Scope | None:
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


class _Uses:
    """Follows a value from expression to expression, and through names of one scope."""

    def __init__(self, scope: _Scope) -> None:
        self.nodes = list(ast.walk(scope))
        self._parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self._elsewhere = {
            name
            for node in self.nodes
            if isinstance(node, _Inner) and node is not scope
            for part in ast.walk(node)
            if (name := getattr(part, "id", None))
        }
        for node in self.nodes:
            if isinstance(node, ast.Global | ast.Nonlocal):
                self._elsewhere.update(node.names)
        self._sees_names = any(getattr(node, "id", None) in _LOOKS for node in self.nodes)
        self._arguments = {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        self._known: set[str] = set()

    def is_fine(self, value: ast.expr) -> bool:
        parent = self._parents[value]
        if isinstance(parent, ast.BinOp):
            stays = isinstance(parent.op, ast.Add | ast.Mult)
            return self.is_fine(parent) if stays else not isinstance(parent.op, ast.MatMult)
        if isinstance(parent, ast.FormattedValue | ast.Compare | ast.UnaryOp | ast.Expr):
            return True
        if isinstance(parent, ast.If | ast.While):
            return True  # its truth
        if isinstance(parent, ast.Call):
            return self._is_shown(parent, value)
        if isinstance(parent, ast.Assign):
            return all(self._is_fine_name(target) for target in parent.targets)
        if isinstance(parent, ast.AugAssign):
            if getattr(parent.target, "id", None) in self._arguments:
                return False  # a tensor of the caller's is changed in its place
            stays = isinstance(parent.op, ast.Add | ast.Mult)
            return self._is_fine_name(parent.target) if stays else True
        return False

    def _is_fine_name(self, target: ast.expr) -> bool:
        """All that reads it, wherever in the scope."""
        if not isinstance(target, ast.Name) or self._sees_names:
            return False
        name = target.id
        if name in self._known:
            return True
        if name in self._elsewhere:
            return False
        self._known.add(name)
        reads = [
            node
            for node in self.nodes
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]
        return all(self.is_fine(node) for node in reads)

    def _is_shown(self, call: ast.Call, value: ast.expr) -> bool:
        function = call.func
        if function is value:
            return False
        if isinstance(function, ast.Name):
            return function.id in _SHOWS
        if not isinstance(function, ast.Attribute):
            return False
        owner = function.value
        if function.attr == "format":
            return isinstance(owner, ast.Constant) and isinstance(owner.value, str)
        return isinstance(owner, ast.Name) and owner.id == "math"
