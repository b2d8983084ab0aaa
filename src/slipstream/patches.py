"""Functions and methods replaced for a while, and put back, in whatever order that happens."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_MISSING: Any = object()


@dataclass(eq=False)
class _Layer:
    """One replacement of an attribute; `below` is what the owner had for itself before."""

    owner: Any
    name: str
    wrap: Callable[[Any], Any]
    disguised: bool
    below: Any = None
    listed: tuple[list[Any], Any] | None = None

    def put(self) -> bool:
        """On top of what is there; whether that can be done."""
        original = getattr(self.owner, self.name)
        self.below = vars(self.owner).get(self.name, _MISSING)
        replacement = self.wrap(original)
        if self.disguised:
            with contextlib.suppress(AttributeError):
                functools.update_wrapper(replacement, original)
        if isinstance(self.owner, type) and isinstance(
            inspect.getattr_static(self.owner, self.name), (classmethod, staticmethod)
        ):
            # What was found is bound already, and must not be given an instance as well.
            replacement = staticmethod(replacement)
        try:
            setattr(self.owner, self.name, replacement)
        except (AttributeError, TypeError):
            return False  # a type of an extension that cannot be changed
        self._unlist()
        if self.owner is getattr(sys.modules.get("torch"), "Tensor", None):
            self._list(original, replacement)
        return True

    def _list(self, original: Any, replacement: Any) -> None:
        """Parameters without a shape allow a list of methods, by themselves."""
        lazy = getattr(sys.modules.get("torch.nn.parameter"), "UninitializedTensorMixin", None)
        allowed = getattr(lazy, "_allowed_methods", [])
        if original in allowed:
            allowed.append(replacement)
            self.listed = allowed, replacement

    def _unlist(self) -> None:
        if self.listed is not None:
            allowed, replacement = self.listed
            allowed.remove(replacement)
            self.listed = None

    def take(self) -> None:
        """Off, with all that lies on it."""
        self._unlist()
        if self.below is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.below)


# Of all patches of the process, the lowest first: one that goes while another lies on it would
# otherwise come back with the other.
_layers: dict[tuple[int, str], list[_Layer]] = {}


class Patches:
    """Replaces attributes of modules and classes; `undo` puts the originals back."""

    def __init__(self) -> None:
        self._own: list[_Layer] = []

    def replace(
        self, owner: Any, name: str, wrap: Callable[[Any], Any], *, disguised: bool = True
    ) -> None:
        """Put `wrap(original)` in the place of an attribute; where there is none, do nothing.
        `disguised`: it has the name of the original, and so is the original to pickle. `wrap` is
        called again when a replacement below goes first.
        """
        if getattr(owner, name, _MISSING) is _MISSING:
            return
        layer = _Layer(owner, name, wrap, disguised)
        if layer.put():
            _layers.setdefault((id(owner), name), []).append(layer)
            self._own.append(layer)

    def undo(self) -> None:
        """The latest first."""
        while self._own:
            layer = self._own.pop()
            place = (id(layer.owner), layer.name)
            layers = _layers[place]
            above = layers[layers.index(layer) + 1 :]
            layers.remove(layer)
            if not layers:
                del _layers[place]
            layer.take()
            for other in above:
                other.put()
