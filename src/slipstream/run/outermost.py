"""Calls of models by the script: not those that a model makes of its own parts."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from slipstream.patches import Patches
from slipstream.rng import Rng
from slipstream.run.evaluating.purity import signature
from slipstream.run.fix import Situation

Call = Callable[..., Any]
# around(module, call, args, kwargs): `call(*args, **kwargs)` is what the script has called.
Around = Callable[[Any, Call, tuple[Any, ...], dict[str, Any]], Any]
# Nothing inside these is touched: they copy modules, or talk to other processes.
_CLOSED = ("ScriptModule", "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_MOST_KINDS = 256


class Outermost:
    """Hands calls of modules that have parameters to `around`, until it is undone."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._local = threading.local()
        self._patches = Patches()

    def start(self) -> None:
        """Before the script."""
        self._patches.replace(torch.nn.Module, "__call__", self._wrap)

    def undo(self) -> None:
        """No more calls are handed on."""
        self._patches.undo()

    def _wrap(self, original: Any) -> Any:
        local, known, around, look_at = self._local, self._known, self._around, self._look_at

        # Torch's profiler looks for a module named self in the frame of Module.__call__.
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or getattr(local, "is_inside", False):
                return original(self, *args, **kwargs)
            kind = known.get(self) or look_at(self)
            if kind == "plain":
                return original(self, *args, **kwargs)
            local.is_inside = True
            try:
                if kind == "closed":
                    return original(self, *args, **kwargs)
                return around(self, lambda *a, **k: original(self, *a, **k), args, kwargs)
            finally:
                local.is_inside = False

        return call

    def _look_at(self, module: Any) -> str:
        names = {kind.__name__ for kind in type(module).__mro__}
        if names.intersection(_CLOSED) or getattr(module, "_is_replica", False):
            kind = "closed"
        else:
            kind = "plain" if next(module.parameters(), None) is None else "model"
        self._known[module] = kind
        return kind


class Tries:
    """Makes calls in a new way. The first of each kind (shapes, types, modes) may fail: it is then
    made as written, from the same random numbers and buffers, and so are all of its kind.
    """

    def __init__(self, situation: Situation, name: str) -> None:
        self._situation, self._name = situation, name
        self._works: weakref.WeakKeyDictionary[Any, dict[Any, bool]] = weakref.WeakKeyDictionary()

    def call(self, module: Any, new: Callable[[], Any], old: Callable[[], Any], given: Any) -> Any:
        """What `new` gives, or `old` where that failed."""
        kind = (signature(module, given), module.training, torch.is_grad_enabled())
        works = self._works.setdefault(module, {})
        if kind in works:
            return new() if works[kind] else old()
        before = Before(module)
        try:
            result = new()
        except Exception as error:
            before.restore()
            result = old()  # an error of the script's own comes again, as its own
            self._keep(works, kind, False)
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self._situation.note(
                self._name, f"left {type(module).__name__} alone for some inputs ({reason})"
            )
            return result
        self._keep(works, kind, True)
        return result

    def _keep(self, works: dict[Any, bool], kind: Any, does_work: bool) -> None:
        if len(works) < _MOST_KINDS:
            works[kind] = does_work


class Before:
    """Random streams, and buffers of a module, as they are now."""

    def __init__(self, module: Any) -> None:
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        self._random = Rng()

    def restore(self) -> None:
        """So that a call can be made as if none had been."""
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)
        self._random.restore()


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], thing: Any) -> Any:
    """The same containers, with every tensor changed."""
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, thing)


def tensors_of(thing: Any) -> list[torch.Tensor]:
    """In all containers."""
    return [leaf for leaf in tree_leaves(thing) if isinstance(leaf, torch.Tensor)]


def device_of(module: Any) -> str:
    """The type of the device of its first parameter."""
    first = next(module.parameters(), None)
    return "cpu" if first is None else str(first.device.type)
