"""Functions that open files by themselves, with the path that they are given mapped."""

import os
from collections.abc import Callable
from typing import Any

from slipstream.run.sandbox.layers import Layers


def with_path(original: Any, position: int, name: str, change: Callable[[Any], Any]) -> Any:
    """Its argument `name` is a path, or a file."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = args[position] if len(args) > position else kwargs.get(name)
        if isinstance(given, (str, os.PathLike)):
            if len(args) > position:
                args = (*args[:position], change(given), *args[position + 1 :])
            else:
                kwargs[name] = change(given)
        return original(*args, **kwargs)

    return call


def path_for(layers: Layers, path: Any, mode: str) -> str:
    """Where a file is opened in a mode of Python's `open`."""
    if any(letter in mode for letter in "wax+"):
        return layers.for_writing(path, keep="w" not in mode, follow="x" not in mode)
    return layers.for_reading(path)
