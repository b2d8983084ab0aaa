"""Functions and methods replaced for a while, and put back."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

_MISSING: Any = object()


class Patches:
    """Replaces attributes of modules and classes; `undo` puts the originals back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def replace(
        self, owner: Any, name: str, wrap: Callable[[Any], Any], *, disguised: bool = True
    ) -> None:
        """Put `wrap(original)` in the place of an attribute; where there is none, do nothing.
        `disguised`: it has the name of the original, and so is the original to pickle.
        """
        original = getattr(owner, name, _MISSING)
        if original is _MISSING:
            return
        own = vars(owner).get(name, _MISSING)
        replacement = wrap(original)
        if disguised:
            with contextlib.suppress(AttributeError):
                functools.update_wrapper(replacement, original)
        try:
            setattr(owner, name, replacement)
        except (AttributeError, TypeError):
            return  # a type of an extension that cannot be changed
        self._undo.append((owner, name, own))

    def undo(self) -> None:
        """The latest first."""
        while self._undo:
            owner, name, own = self._undo.pop()
            if own is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
