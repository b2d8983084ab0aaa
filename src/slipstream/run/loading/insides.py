"""What is to be known of an object into which a `Watch` cannot look by itself."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Inside:
    """`looks` tell whether it changes, `parts` are to be looked at as well, and `why_not` says why
    it cannot be watched.
    """

    looks: list[Callable[[], Any]] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)
    why_not: str = ""
