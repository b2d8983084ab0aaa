"""Counts that are chosen while training: the argument "auto"."""

from typing import overload

from slipstream.cpu import usable_cores
from slipstream.errors import UsageError

DEFAULT_PREFETCH = 2
MOST_PREFETCH = 8


class AutoCount(int):
    """A number that a loader may change. An int, because frameworks read `num_workers` as one; its
    type, because they also hand it on to the loader they make anew.
    """


@overload
def auto_count(name: str, value: int | str) -> int: ...
@overload
def auto_count(name: str, value: int | str | None) -> int | None: ...
def auto_count(name: str, value: int | str | None) -> int | None:
    """The argument `name` as a number; "auto" as one to begin with.

    >>> isinstance(auto_count("num_workers", "auto"), AutoCount), auto_count("num_workers", 3)
    (True, 3)
    """
    if not isinstance(value, str):
        return value
    if value != "auto":
        raise UsageError(f'{name} is {value!r}, expected a number or "auto".')
    if name == "num_workers":
        # One core stays with the training loop until measurements say that it can be spared.
        return AutoCount(max(1, min(4, usable_cores() - 1)))
    return AutoCount(DEFAULT_PREFETCH)
