"""What the calls in a function call, as far as its names lead there."""

import ast
from collections.abc import Iterable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

from slipstream.run.evaluating.kinds import Kind, is_tensor, keeps_nothing, kind_of
from slipstream.run.evaluating.places import MISSING, Item, Place
from slipstream.run.evaluating.stores import Stores

# What a name is bound to where only this much is known of it.
A_TENSOR = "a tensor"
Bound = Place | str


class Looks:
    """What was found in places, and whether it is still there."""

    def __init__(self, local: dict[str, Any]) -> None:
        self._local = local
        self._found: dict[tuple[Any, ...], tuple[Place, Kind]] = {}

    def at(self, place: Place) -> Any:
        """What lies there."""
        found = place.find(self._local)
        self._found[(id(place.scope), *place.steps)] = place, kind_of(found)
        return found

    def are_same(self, local: dict[str, Any]) -> bool:
        """In another call of the function."""
        return all(kind_of(place.find(local)) == kind for place, kind in self._found.values())

    def forget_locals(self) -> None:
        """They are not to be kept alive."""
        self._local = {}


class Names:
    """The names of one function. `bound` are those of its own that are known."""

    def __init__(
        self,
        stores: Stores,
        bound: dict[str, Bound],
        scope: dict[str, Any],
        looks: Looks,
        of_outer: Iterable[str] = (),
    ) -> None:
        self._stores, self._bound, self._scope, self._looks = stores, bound, scope, looks
        self._of_outer = frozenset(of_outer)  # of functions around it

    def bound_to(self, node: ast.expr) -> Bound | None:
        """What is known of an expression, to hand on to a function that gets it."""
        return self.place(node) or (A_TENSOR if self.is_tensor(node) else None)

    def value(self, node: ast.expr) -> Any:
        """`MISSING` where the names do not lead to one."""
        place = self.place(node)
        return MISSING if place is None else self._looks.at(place)

    def is_tensor(self, node: ast.expr) -> bool:
        """A plain one, for sure."""
        if isinstance(node, ast.Name) and self._bound.get(node.id) == A_TENSOR:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            made_by = self.value(node.func)
            if keeps_nothing(made_by) and made_by.__module__ != "builtins":
                return True  # torch's functions make tensors
            return hasattr(torch.Tensor, node.func.attr) and self.is_tensor(node.func.value)
        if isinstance(node, ast.BinOp):
            return self.is_tensor(node.left) or self.is_tensor(node.right)
        if isinstance(node, ast.Subscript) and self.is_tensor(node.value):
            return True
        return is_tensor(self.value(node))

    def place(self, node: ast.expr) -> Place | None:
        """Where the value of an expression lies."""
        if isinstance(node, ast.Name):
            bound = self._bound.get(node.id)
            if bound is not None or node.id in self._of_outer or self._stores.is_local(node.id):
                return bound if isinstance(bound, Place) else None
            return Place(self._scope, (node.id,))
        if isinstance(node, ast.Attribute):
            place = self.place(node.value)
            return None if place is None else place.then(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            place = self.place(node.value)
            return None if place is None else place.then(Item(node.slice.value))
        return None


def bind(
    function: ast.FunctionDef, call: ast.Call, *, has_self: bool
) -> list[tuple[str, ast.expr]] | None:
    """Which argument of a function gets what. None where that cannot be told."""
    own = function.args
    if any(isinstance(value, ast.Starred) for value in call.args):
        return None
    names = [argument.arg for argument in (*own.posonlyargs, *own.args)][1 if has_self else 0 :]
    if len(call.args) > len(names):
        return None
    pairs = list(zip(names, call.args, strict=False))
    known = {*names, *(argument.arg for argument in own.kwonlyargs)}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in known:
            return None
        pairs.append((keyword.arg, keyword.value))
    return pairs


def owner_of(place: Place, value: Any) -> Place | None:
    """Where that lies which a function of the script gets as its first argument, unasked."""
    if isinstance(value, MethodType):
        return Place(place.scope, place.steps[:-1]) if len(place.steps) > 1 else None
    return None if isinstance(value, FunctionType) else place


def parts_of(place: Place, module: torch.nn.Module) -> Iterator[tuple[Place, torch.nn.Module]]:
    """With the places of all."""
    for name, part in module.named_modules():
        yield place.then(*name.split(".")) if name else place, part
