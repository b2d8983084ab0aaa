"""What is to be known of an object into which a `Watch` cannot look by itself."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Inside:
    """`looks` tell whether it changes, `parts` are to be looked at as well, and `why_not` says why
    it cannot be watched. `addresses` are of memory that may be a file's, and `files` the device and
    number of those that it reads from.
    """

    looks: list[Callable[[], Any]] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)
    why_not: str = ""
    addresses: list[int] = field(default_factory=list)
    files: list[tuple[int, int]] = field(default_factory=list)
