"""Functions that open files by themselves, with the path that they are given mapped."""

import os
from collections.abc import Callable
from typing import Any


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
