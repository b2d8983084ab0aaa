"""Whether all that a script does with a value is to add it up and to show it, by its source."""

import ast
from collections.abc import Callable
from types import CodeType

from slipstream.run.deferred.source import Scope, scope_of

Meter = tuple[str, str]  # the name of an object, and that of a method of it
_Inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_SHOWS = {"print", "str", "repr", "format", "float", "int", "bool", "round"}
# The last two look at its truth.
_SHOWN_BY = (ast.FormattedValue, ast.Compare, ast.UnaryOp, ast.Expr, ast.If, ast.While)
_LOOKS = {"locals", "globals", "vars", "eval", "exec"}  # at names that we do not see


def only_summed_and_shown(
    code: CodeType, line: int, is_meter: Callable[[str, str], bool] = lambda name, method: False
) -> set[Meter] | None:
    """Of what `.item()` gives at this line: the meters that sum it up, which are none as a rule;
    None where anything else is done with it, or where that cannot be told.
    """
    scope = scope_of(code)
    if scope is None:
        return None
    uses = _Uses(scope, is_meter)
    calls = [
        node
        for node in uses.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "item"
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return uses.meters if calls and all(uses.is_fine(call) for call in calls) else None


class _Uses:
    """Follows a value from expression to expression, and through names of one scope."""

    def __init__(self, scope: Scope, is_meter: Callable[[str, str], bool]) -> None:
        self._is_meter = is_meter
        self.meters: set[Meter] = set()
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

    def is_fine(self, value: ast.expr, *, is_named: bool = False) -> bool:
        """`is_named`: it comes by a name, some time after it was read."""
        parent = self._parents[value]
        if isinstance(parent, ast.BinOp):
            stays = isinstance(parent.op, ast.Add | ast.Mult)
            if stays:
                return self.is_fine(parent, is_named=is_named)
            return not isinstance(parent.op, ast.MatMult)
        if isinstance(parent, _SHOWN_BY):
            return True
        call = self._parents[parent] if isinstance(parent, ast.keyword) else parent
        if isinstance(call, ast.Call):
            is_shown = call is parent and self._is_shown(call, value)
            return is_shown or self._is_metered(call, value, is_named=is_named)
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
        return all(self.is_fine(node, is_named=True) for node in reads)

    def _is_metered(self, call: ast.Call, value: ast.expr, *, is_named: bool) -> bool:
        """An argument of a statement that is a call of a meter's method."""
        function = call.func
        if function is value or not isinstance(self._parents[call], ast.Expr):
            return False
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return False
        meter = function.value.id, function.attr
        if (is_named and not self._stays(meter[0])) or not self._is_meter(*meter):
            return False
        self.meters.add(meter)
        return True

    def _stays(self, name: str) -> bool:
        """Whether it names the same object when a value is read and when it is given away."""
        stored: list[ast.AST] = [
            node
            for node in self.nodes
            if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        ]
        if len(stored) > 1:
            return False
        while stored and stored[0] in self._parents:
            stored[0] = self._parents[stored[0]]
            if isinstance(stored[0], ast.For | ast.AsyncFor | ast.While):
                return False
        return True

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
