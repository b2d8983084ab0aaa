"""Meters: objects of the script with a method that sums up what it is given, as the AverageMeter
of many scripts has. A call with a number that is on its way is noted, and made, with the same
arguments and in the same order, before anybody looks at the object.
"""

import ast
import builtins
import sys
import threading
from types import FunctionType
from typing import Any

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches
from slipstream.run.deferred.source import scope_of
from slipstream.run.deferred.value import Deferred, plain

_MOST = 256  # calls that wait; by then the numbers of the first ones have long arrived
_PLAIN = (bool, int, float, Deferred)
_COMPUTES = {"float", "int", "max", "min", "abs", "round"}
_OWN_WAYS = (
    "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__slots__", "__del__",
)  # fmt: skip

_Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


class _Example:
    pass


def _references(owner: Any) -> int:
    attributes = object.__getattribute__(owner, "__dict__")
    return sys.getrefcount(attributes)


_ALONE = _references(_Example())


def _is_open(owner: Any) -> bool:
    """Whether somebody holds its attributes, and sees them without asking."""
    return _references(owner) > _ALONE


class Meters:
    """Those that were met. `undo` makes what is left to be made, and leaves their classes."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._lock = threading.RLock()
        self._known: dict[tuple[type, str], bool] = {}
        self.followed: set[type] = set()
        self._waiting: dict[int, tuple[Any, list[_Call]]] = {}

    def takes(self, owner: Any, method: str) -> bool:
        """Whether calls of this method of an object can wait."""
        key = (type(owner), method)
        known = self._known.get(key)
        if known is None:
            known = type(owner) not in self.followed and only_sums_up(*key)
            self._known[key] = known
            if known:
                self.followed.add(type(owner))
                self._follow(*key)
        return known

    def undo(self) -> None:
        """See the class."""
        self._patches.undo()
        for owner, _ in list(self._waiting.values()):
            self._settle(owner)

    def _follow(self, kind: type, method: str) -> None:
        def wrap_method(original: Any) -> Any:
            def noted(owner: Any, *args: Any, **kwargs: Any) -> Any:
                given = (*args, *kwargs.values())
                if any(type(one) is Deferred for one in given):
                    if all(map(_can_wait, given)) and not _is_open(owner):
                        self._note(owner, (original, args, kwargs))
                        return None
                    args = tuple(map(plain, args))
                    kwargs = {name: plain(value) for name, value in kwargs.items()}
                self._settle(owner)
                return original(owner, *args, **kwargs)

            return noted

        def wrap_look(original: Any) -> Any:
            def look(owner: Any, name: str) -> Any:
                if name != method and id(owner) in self._waiting:
                    self._settle(owner)
                return original(owner, name)

            return look

        def wrap_change(original: Any) -> Any:
            def change(owner: Any, name: str, *value: Any) -> None:
                if id(owner) in self._waiting:
                    self._settle(owner)
                original(owner, name, *value)

            return change

        self._patches.replace(kind, method, wrap_method)
        self._patches.replace(kind, "__getattribute__", wrap_look)
        self._patches.replace(kind, "__setattr__", wrap_change)
        self._patches.replace(kind, "__delattr__", wrap_change)

    def _note(self, owner: Any, call: _Call) -> None:
        with self._lock:
            # The object is held while calls of it wait: its number is its own.
            _, calls = self._waiting.setdefault(id(owner), (owner, []))
            calls.append(call)
            if len(calls) <= _MOST:
                return
            first, later = calls[: _MOST // 2], calls[_MOST // 2 :]
            del self._waiting[id(owner)]
            _make(owner, first)
            self._waiting[id(owner)] = owner, later

    def _settle(self, owner: Any) -> None:
        with self._lock:
            _, calls = self._waiting.pop(id(owner), (None, []))
            _make(owner, calls)


def _make(owner: Any, calls: list[_Call]) -> None:
    for method, args, kwargs in calls:
        given = {name: plain(value) for name, value in kwargs.items()}
        method(owner, *map(plain, args), **given)


def _can_wait(value: Any) -> bool:
    """It cannot change meanwhile, and a division by it cannot fail later than it would have."""
    return type(value) is Deferred or (type(value) in _PLAIN and value > 0)


def only_sums_up(kind: type, method: str) -> bool:
    """Whether all that this method does is to compute attributes of its object from others and
    from its arguments, by its source, and whether nobody sees the object but by its attributes.
    """
    function = vars(kind).get(method)
    if (
        kind.__mro__ != (kind, object)
        or type(kind) is not type
        or any(name in vars(kind) for name in _OWN_WAYS)
        or type(function) is not FunctionType
        or function.__closure__
        or not is_users(function.__code__)
    ):
        return False
    scope = scope_of(function.__code__)
    if not isinstance(scope, ast.FunctionDef) or scope.decorator_list:
        return False
    taken = scope.args
    if taken.vararg or taken.kwarg or not (taken.posonlyargs or taken.args):
        return False
    names = [one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    if not all(isinstance(one, ast.Constant) for one in (*taken.defaults, *taken.kw_defaults)):
        return False
    computed = {name for name, value in vars(kind).items() if hasattr(type(value), "__get__")}
    body = _Body(names[0], set(names[1:]), function.__globals__, computed)
    return all(map(body.is_fine, scope.body))


class _Body:
    """Of a method."""

    def __init__(
        self, own: str, names: set[str], around: dict[str, Any], computed: set[str]
    ) -> None:
        """`computed` are properties and methods: what they do is not known."""
        self._own, self._names, self._around, self._computed = own, names, around, computed

    def is_fine(self, node: ast.stmt) -> bool:
        """Whether a statement only computes."""
        if isinstance(node, ast.Pass):
            return True
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Return):
            return node.value is None
        if isinstance(node, ast.If):
            inside = (*node.body, *node.orelse)
            return self._is_value(node.test) and all(map(self.is_fine, inside))
        if isinstance(node, ast.AugAssign):
            # Of a name, it could change what the caller has.
            return self._is_attribute(node.target) and self._is_value(node.value)
        if isinstance(node, ast.Assign) and self._is_value(node.value):
            return all(map(self._is_target, node.targets))
        return False

    def _is_target(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name) and node.id != self._own:
            self._names.add(node.id)
            return True
        return self._is_attribute(node)

    def _is_attribute(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == self._own
            and node.attr not in self._computed
        )

    def _is_value(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Constant) or self._is_attribute(node):
            return True
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Call):
            function = node.func
            return (
                isinstance(function, ast.Name)
                and function.id in _COMPUTES
                and self._around.get(function.id, getattr(builtins, function.id))
                is getattr(builtins, function.id)
                and function.id not in self._names
                and not node.keywords
                and all(map(self._is_value, node.args))
            )
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.IfExp):
            parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
            return all(map(self._is_value, parts))
        return False
