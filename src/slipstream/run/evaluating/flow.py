"""Whether a function keeps to itself what a model gives it, by its source.

What has a graph may be given to what only computes: functions of torch and Python, tensors, and
modules of torch. Functions, methods and modules of the script are followed. Whatever else gets it
may keep it and learn from it later, or show it: a tensor that is shown says that it has a graph.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import torch

from slipstream.run.evaluating.callee import Bound, Looks, Names, bind, owner_of, parts_of
from slipstream.run.evaluating.kinds import (
    gives_a_number,
    is_known_part,
    keeps_nothing,
    makes_a_layer,
    users_function,
)
from slipstream.run.evaluating.places import Place
from slipstream.run.evaluating.purity import has_hooks
from slipstream.run.evaluating.shown import (
    is_percent,
    is_percent_of_numbers,
    shows_numbers_alone,
)
from slipstream.run.evaluating.source import Function, function_of
from slipstream.run.evaluating.stores import Stores, is_fresh, is_fresh_throughout

# A function with one of these has to do with gradients.
_LEARNS = {
    "autograd", "backward", "enable_grad", "grad", "grad_fn", "is_grad_enabled", "is_leaf",
    "register_hook", "requires_grad", "requires_grad_", "retain_grad", "retains_grad",
    "set_grad_enabled", "step", "vjp", "jacobian", "hessian",
}  # fmt: skip
# What these get is not written there.
_SEES_ALL = {"eval", "exec", "locals", "vars"}
# What these give has no graph, with gradients on or off.
_PLAIN_METHODS = {
    "all", "any", "argmax", "argmin", "argsort", "detach", "dim", "eq", "equal", "ge", "gt",
    "isfinite", "isinf", "isnan", "item", "le", "long", "lt", "ne", "nelement", "nonzero", "numel",
    "numpy", "size", "tolist",
}  # fmt: skip
_PLAIN_RESULTS = {*_PLAIN_METHODS, "format"}
_PLAIN_FUNCTIONS = {
    "bool", "callable", "float", "hasattr", "int", "isinstance", "len", "print", "range", "str",
    "type",
}  # fmt: skip
_PLAIN_ATTRIBUTES = {"data", "device", "dtype", "indices", "ndim", "shape"}
_KEEPERS = {"add", "append", "appendleft", "extend", "insert", "setdefault", "update"}
_OF_CONTAINERS = {
    "clear",
    "copy",
    "count",
    "get",
    "index",
    "items",
    "keys",
    "pop",
    "sort",
    "values",
}
# Whatever has a method of this name is a tensor.
_OF_TENSORS = {"eq", "expand_as", "reshape_as", "type_as", "view_as"}
_PAIRS = {"cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "sort", "topk"}
# No module has such a name.
_NO_MODELS = {
    "cpu", "cuda", "double", "flatten", "float", "half", "permute", "reshape", "square", "squeeze",
    "to", "transpose", "unsqueeze", "view",
}  # fmt: skip
_NUMBERS = {"max", "mean", "min", "norm", "prod", "sum"}
_MAKES = ("cat", "clone", "empty", "full", "new_", "ones", "rand", "stack", "tensor", "zeros")
_ROUNDS = 10
_DEPTH = 6


@dataclass
class Verdict:
    """`why_not` says where a value may be kept, or is shown; `gives` whether the function returns
    one that may have a graph. `looks` are what this is true of.
    """

    why_not: str
    gives: bool
    looks: Looks

    @property
    def stays(self) -> bool:
        """Whether nobody has it when the function is over."""
        return not self.why_not and not self.gives


@dataclass
class _Search:
    """What is the same for all functions that are followed from one call."""

    looks: Looks
    under_way: dict[Any, bool] = field(default_factory=dict)
    known: dict[Any, Verdict] = field(default_factory=dict)


def keeps_to_itself(
    code: CodeType, line: int, local: dict[str, Any], scope: dict[str, Any], instruction: int = -1
) -> Verdict:
    """Of what is called at this line of a function, or by this instruction. `local` and `scope` are
    its locals, as far as they are known, and its globals.
    """
    looks = Looks(local)
    function = function_of(code)
    if not isinstance(function, ast.FunctionDef):
        is_outside = code.co_name == "<module>"
        why = "it is called outside of functions" if is_outside else "its caller has no source"
        return Verdict(why, gives=False, looks=looks)
    sites = _sites(function, code, line, instruction)
    stores = Stores(function)
    last = min((node.lineno for node in sites), default=line)
    bound: dict[str, Bound] = {
        name: Place(None, (name,))
        for name in (*stores.names(), *code.co_freevars)
        if name in local and all(at < last for at, _ in stores.of(name))
    }
    names = Names(stores, bound, scope, looks)
    return _Flow(function, names, stores, _Search(looks), sites=sites).verdict()


def _sites(
    function: ast.FunctionDef, code: CodeType, line: int, instruction: int
) -> list[ast.Call]:
    """The call that is meant, or all that it may be."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    if instruction >= 0 and sys.version_info >= (3, 11):
        at = list(code.co_positions())[instruction // 2]
        exact = [c for c in calls if (c.lineno, c.end_lineno, c.col_offset, c.end_col_offset) == at]
        if exact:
            return exact
    return [
        call
        for call in calls
        if call.lineno <= line <= (call.end_lineno or call.lineno) and _may_be_a_model(call.func)
    ]


def _may_be_a_model(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr not in _PLAIN_METHODS | _NO_MODELS
    return not (isinstance(function, ast.Name) and function.id in _PLAIN_FUNCTIONS)


def _is_trouble(node: ast.AST) -> bool:
    if isinstance(node, ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal | ast.Lambda):
        return True
    if isinstance(node, ast.Name) and node.id in _SEES_ALL:
        return True
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return name in _LEARNS


class _Flow:
    """Follows values through the names of a function, until no more are found: from calls in it, or
    from arguments that it has.
    """

    def __init__(
        self,
        function: ast.FunctionDef,
        names: Names,
        stores: Stores,
        search: _Search,
        *,
        sites: list[ast.Call] | None = None,
        given: frozenset[str] = frozenset(),
    ) -> None:
        self._function, self._scope, self._stores, self._search = function, names, stores, search
        self._nodes = list(ast.walk(function))
        self._sites = sites or []
        self._names = set(given)
        self._why_not = ""
        self._gives = False

    def verdict(self) -> Verdict:
        """Once."""
        if any(_is_trouble(node) for node in self._nodes):
            self._escape(self._function, "has to do with gradients")
        inner = (*Function.__args__, ast.ClassDef)
        if any(isinstance(n, inner) for n in self._nodes if n is not self._function):
            self._escape(self._function, "has functions inside")
        for _ in range(_ROUNDS):
            before = set(self._names)
            for node in self._nodes:
                if not self._why_not:
                    self._follow(node)
            if self._why_not or self._names == before:
                break
        else:
            self._escape(self._function, "is too long to follow")
        return Verdict(self._why_not, self._gives, self._search.looks)

    def _escape(self, node: ast.AST, why: str) -> None:
        self._why_not = self._why_not or f"line {getattr(node, 'lineno', 0)} {why}"

    def _follow(self, node: ast.AST) -> None:
        if isinstance(node, ast.Return) and node.value is not None:
            self._gives |= self._has(node.value)
        elif isinstance(node, ast.Assign):
            self._follow_assign(node)
        elif isinstance(node, ast.AugAssign) and self._has(node.value):
            self._put(node.target)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            if node.value is not None and self._has(node.value):
                self._mark(node.target)
        elif isinstance(node, ast.For | ast.comprehension) and self._has(node.iter):
            self._mark(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            if self._has(node.context_expr):
                self._mark(node.optional_vars)
        elif isinstance(node, ast.Match) and self._has(node.subject):
            self._escape(node, "takes it apart")
        elif isinstance(node, ast.Call):
            self._follow_call(node)
        else:
            self._follow_shown(node)

    def _follow_assign(self, node: ast.Assign) -> None:
        if self._has(node.value):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and len(target.elts) == 2:
                    # The second are numbers of places, which have no graph.
                    self._mark(target.elts[0] if self._is_pair(node.value) else target)
                else:
                    self._mark(target)
        elif len(node.targets) > 1 and any(
            isinstance(target, ast.Name) and target.id in self._names for target in node.targets
        ):
            for target in node.targets:  # two names of one list
                self._mark(target)

    def _follow_shown(self, node: ast.AST) -> None:
        if isinstance(node, ast.FormattedValue) and self._has(node.value):
            is_number = node.format_spec is not None or self._is_number(node.value)
            if node.conversion != -1 or not is_number:
                self._escape(node, "shows it")
        elif isinstance(node, ast.BinOp) and is_percent(node) and self._has(node.right):
            if not is_percent_of_numbers(node):
                self._escape(node, "shows it")
        elif isinstance(node, ast.Assert) and node.msg is not None and self._has(node.msg):
            self._escape(node, "shows it")

    def _follow_call(self, node: ast.Call) -> None:
        function = node.func
        is_given = any(self._has(value) for value in _given(node))
        if isinstance(function, ast.Attribute) and self._has(function.value):
            self._follow_method(node, function, is_given=is_given)
        elif is_given and not self._is_site(node) and not self._keeps_nothing(node):
            verdict = self._called(node)
            if verdict is not None:
                if verdict.why_not:
                    self._escape(
                        node, f"gives it to {ast.unparse(function)}, whose {verdict.why_not}"
                    )
            elif isinstance(function, ast.Attribute) and _puts(function.attr):
                self._put(function.value)
            else:
                self._escape(node, f"gives it to {ast.unparse(function)}")

    def _is_site(self, node: ast.Call) -> bool:
        """For sure: one that gets its own results again keeps no more of them."""
        return self._sites == [node]

    def _follow_method(self, node: ast.Call, function: ast.Attribute, *, is_given: bool) -> None:
        """Of a tensor that may have a graph, or of a container of them."""
        name = function.attr
        if name in _KEEPERS and is_given and not self._is_of_tensor(function.value):
            self._put(function.value)
        elif not hasattr(torch.Tensor, name) and name not in _KEEPERS | _OF_CONTAINERS:
            self._escape(node, f"calls {name}")

    def _is_of_tensor(self, node: ast.expr) -> bool:
        return self._computes(node) or self._scope.is_tensor(node)

    def _keeps_nothing(self, node: ast.Call) -> bool:
        function = node.func
        if isinstance(function, ast.Attribute):
            name, owner = function.attr, function.value
            if name in _OF_TENSORS or (name == "format" and shows_numbers_alone(owner)):
                return True
            if self._scope.is_tensor(owner):
                return hasattr(torch.Tensor, name) and not name.endswith("_")
        if any(keyword.arg == "key" for keyword in node.keywords):
            return False  # a function that gets them, too
        return keeps_nothing(self._scope.value(function)) or self._is_new_layer(function)

    def _is_new_layer(self, node: ast.expr) -> bool:
        """`nn.CrossEntropyLoss()`, or a name of one that the function has made."""
        made = [node]
        if isinstance(node, ast.Name):
            made = self._stores.values(node.id) or made
        return all(
            isinstance(value, ast.Call) and makes_a_layer(self._scope.value(value.func))
            for value in made
        )

    def _called(self, node: ast.Call) -> Verdict | None:
        """Of a function, method or module of the script, if it is one."""
        value, place = self._scope.value(node.func), self._scope.place(node.func)
        if place is None:
            return None
        if isinstance(value, torch.nn.Module):
            return self._module(place, value)
        own = users_function(value)
        if own is None:
            return None
        function = function_of(own.__code__)
        owner = owner_of(place, value)
        if not isinstance(function, ast.FunctionDef):
            return None
        pairs = bind(function, node, has_self=owner is not None)
        if pairs is None:
            return None
        bound = {name: known for name, v in pairs if (known := self._scope.bound_to(v)) is not None}
        if owner is not None:
            bound[_first(function)] = owner
        given = frozenset(name for name, v in pairs if self._has(v))
        return self._enter(function, bound, own, given)

    def _module(self, place: Place, module: torch.nn.Module) -> Verdict:
        """Its parts of the script's own may get anything."""
        looks = self._search.looks
        if has_hooks(module):
            return Verdict("hooks get it, too", gives=True, looks=looks)
        for own, part in parts_of(place, module):
            if is_known_part(part):
                continue
            forward = None if "forward" in vars(part) else users_function(type(part).forward)
            function = None if forward is None else function_of(forward.__code__)
            if forward is None or not isinstance(function, ast.FunctionDef):
                return Verdict("code is not known", gives=True, looks=looks)
            me = _first(function)
            given = frozenset(Stores(function).arguments - {me})
            verdict = self._enter(function, {me: own}, forward, given)
            if verdict.why_not:
                return Verdict(verdict.why_not, gives=True, looks=looks)
        return Verdict("", gives=True, looks=looks)

    def _enter(
        self,
        function: ast.FunctionDef,
        bound: dict[str, Bound],
        own: FunctionType,
        given: frozenset[str],
    ) -> Verdict:
        """From arguments that may have a graph; `bound` is what is known of the others."""
        search, stores = self._search, Stores(function)
        places = tuple(sorted((n, p if isinstance(p, str) else _key(p)) for n, p in bound.items()))
        key = (id(function), given, places)
        if key in search.known:
            return search.known[key]
        if key in search.under_way:
            return Verdict("", search.under_way[key], search.looks)
        if len(search.under_way) >= _DEPTH:
            return Verdict("calls go too deep", gives=True, looks=search.looks)
        kept = {name: known for name, known in bound.items() if not stores.of(name)}
        names = Names(stores, kept, own.__globals__, search.looks, own.__code__.co_freevars)
        for gives in (False, True):  # what is taken of it where it calls itself
            search.under_way[key] = gives
            before = dict(search.known)
            verdict = _Flow(function, names, stores, search, given=given).verdict()
            if verdict.gives == gives:
                break
            search.known = before
        del search.under_way[key]
        search.known[key] = verdict
        return verdict

    def _mark(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._names.add(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._mark(part)
        elif isinstance(target, ast.Starred):
            self._mark(target.value)
        elif isinstance(target, ast.Subscript):
            self._put(target.value)
        else:
            self._escape(target, f"puts it into {ast.unparse(target)}")

    def _put(self, container: ast.expr) -> None:
        """What is put into a container is in it, and with all who have that."""
        name, is_part = container, isinstance(container, ast.Subscript)
        while isinstance(name, ast.Subscript):
            name = name.value
        if isinstance(name, ast.Name) and self._is_made_here(name.id, throughout=is_part):
            self._names.add(name.id)
        else:
            self._escape(container, f"puts it into {ast.unparse(container)}")

    def _is_made_here(self, name: str, *, throughout: bool) -> bool:
        values = self._stores.values(name)
        if values is None:
            return False
        if throughout:
            return all(map(is_fresh_throughout, values)) and not self._is_filled(name)
        return all(is_fresh(value) or self._computes(value) for value in values)

    def _is_filled(self, name: str) -> bool:
        """With what others may have."""
        targets = [
            (t, n.value) for n in self._nodes if isinstance(n, ast.Assign) for t in n.targets
        ]
        return any(
            isinstance(target, ast.Subscript)
            and isinstance(target.value, ast.Name)
            and target.value.id == name
            and not is_fresh_throughout(value)
            for target, value in targets
        )

    def _computes(self, value: ast.expr) -> bool:
        """Something new, by the model, by torch or by a tensor."""
        if not isinstance(value, ast.Call):
            return False
        function = value.func
        if value in self._sites:
            return True
        if isinstance(function, ast.Attribute) and self._has(function.value):
            return hasattr(torch.Tensor, function.attr) and function.attr not in _OF_CONTAINERS
        if isinstance(function, ast.Attribute) and self._scope.is_tensor(value):
            # Others may give a view of what they get.
            return function.attr.startswith(_MAKES) or self._has(value)
        return self._has(value) and isinstance(self._scope.value(function), torch.nn.Module)

    def _has(self, node: ast.expr) -> bool:
        """Whether the value of an expression may have a graph of the model's."""
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Constant | ast.Compare | ast.JoinedStr) or is_percent(node):
            return False
        if isinstance(node, ast.Attribute):
            return node.attr not in _PLAIN_ATTRIBUTES and self._has(node.value)
        if isinstance(node, ast.Subscript) and self._is_pair(node.value):
            is_second = isinstance(node.slice, ast.Constant) and node.slice.value == 1
            return not is_second and self._has(node.value)
        if isinstance(node, ast.Call):
            return self._has_call(node)
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
            return self._has(node.elt)
        return any(self._has(child) for child in _expressions(node))

    def _has_call(self, node: ast.Call) -> bool:
        function = node.func
        if node in self._sites:
            return True
        if isinstance(function, ast.Name) and function.id in _PLAIN_FUNCTIONS:
            return False
        is_plain = isinstance(function, ast.Attribute) and function.attr in _PLAIN_RESULTS
        if self._has(function):
            return not is_plain
        if not any(self._has(value) for value in _given(node)):
            return False
        if isinstance(function, ast.Attribute) and function.attr in _OF_TENSORS:
            return False  # they take but a shape or a type
        if self._keeps_nothing(node):
            return not is_plain
        verdict = self._called(node)
        return verdict is None or verdict.gives

    def _is_pair(self, node: ast.expr) -> bool:
        """`out.max(1)`, `torch.topk(out, 5)`: values, and where they lie."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        name, owner = node.func.attr, node.func.value
        of_torch = self._scope.value(owner) is torch
        if not of_torch and not self._has(owner):
            return False
        dims = node.args[1:] if of_torch else node.args
        has_dim = any(keyword.arg == "dim" for keyword in node.keywords)
        is_along = has_dim or (len(dims) > 0 and _is_whole_number(dims[0]))
        return name in ("sort", "topk") or (name in _PAIRS and is_along)

    def _is_number(self, node: ast.expr, asked: frozenset[str] = frozenset()) -> bool:
        """A tensor of one number shows that alone in an f-string."""
        if isinstance(node, ast.Name):
            values = None if node.id in asked else self._stores.values(node.id)
            within = asked | {node.id}
            return values is not None and all(self._is_number(value, within) for value in values)
        if isinstance(node, ast.BinOp):
            return self._is_number(node.left, asked) and self._is_number(node.right, asked)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and self._has(node.func.value):
                return node.func.attr in _NUMBERS and not _given(node)
            is_whole = not any(keyword.arg in ("reduction", None) for keyword in node.keywords)
            return is_whole and gives_a_number(self._scope.value(node.func))
        return isinstance(node, ast.Constant)


def _puts(name: str) -> bool:
    return name in _KEEPERS or (name.endswith("_") and hasattr(torch.Tensor, name))


def _is_whole_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) is int


def _first(function: ast.FunctionDef) -> str:
    own = [*function.args.posonlyargs, *function.args.args]
    return own[0].arg if own else ""


def _key(place: Place) -> str:
    return repr((id(place.scope), place.steps))


def _given(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        else:
            yield from _expressions(child)
