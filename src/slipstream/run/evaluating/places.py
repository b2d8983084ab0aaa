"""Where the names of a function lead to."""

import builtins
import inspect
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

MISSING = object()


@dataclass(frozen=True)
class Item:
    """A step to what lies under a key."""

    key: Any


@dataclass(frozen=True, eq=False)
class Place:
    """A name and the steps from it. `scope` are the globals that it is one of; None are the locals
    of the function that calls the model.
    """

    scope: dict[str, Any] | None
    steps: tuple[Any, ...]

    def then(self, *steps: Any) -> "Place":
        """What lies further on."""
        return Place(self.scope, (*self.steps, *steps))

    def find(self, local: dict[str, Any]) -> Any:
        """What lies there now; no code of the script runs for it."""
        name, *steps = self.steps
        scope = local if self.scope is None else self.scope
        found = scope.get(name, MISSING)
        if found is MISSING and self.scope is not None:
            found = vars(builtins).get(name, MISSING)
        for step in steps:
            found = _item(found, step.key) if isinstance(step, Item) else _attribute(found, step)
        return found


def _item(thing: Any, key: Any) -> Any:
    if type(thing) not in (dict, list, tuple):
        return MISSING
    try:
        return thing[key]
    except (LookupError, TypeError):
        return MISSING


def _attribute(thing: Any, name: str) -> Any:
    if isinstance(thing, ModuleType):
        return vars(thing).get(name, MISSING)
    if isinstance(thing, type):
        found = inspect.getattr_static(thing, name, MISSING)
        return found.__func__ if isinstance(found, staticmethod) else found
    own = getattr(thing, "__dict__", None)
    if isinstance(own, dict) and name in own:
        return own[name]
    if isinstance(thing, torch.nn.Module):
        for held in (thing._modules, thing._parameters, thing._buffers):
            if name in held:
                return held[name]
    found = inspect.getattr_static(type(thing), name, MISSING)
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        return MethodType(found.__func__, type(thing))
    return MethodType(found, thing) if isinstance(found, FunctionType) else MISSING
