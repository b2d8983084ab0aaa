"""A sampler that remembers what was sampled and not delivered yet."""

from collections import deque
from collections.abc import Iterator
from typing import Any


class Recorded:
    """Samples as the original does, when that would."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def __iter__(self) -> "Record":
        return Record(iter(self.original))

    def __len__(self) -> int:
        return len(self.original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class Record:
    """Of one pass; `count` is how many were delivered."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._under_way: deque[Any] = deque()
        self.count = 0

    def __iter__(self) -> "Record":
        return self

    def __next__(self) -> Any:
        sampled = next(self._source)
        self._under_way.append(sampled)
        return sampled

    def delivered(self) -> None:
        """The first one that was under way."""
        self._under_way.popleft()
        self.count += 1

    def rest(self) -> Iterator[Any]:
        """What is not delivered, whether it was sampled or not."""
        return Rest(self._under_way, self._source)


class Rest:
    """Begun twice by torch, which takes the second one."""

    def __init__(self, sampled: deque[Any], source: Iterator[Any]) -> None:
        self._sampled, self._source = sampled, source

    def __iter__(self) -> "Rest":
        return self

    def __next__(self) -> Any:
        return self._sampled.popleft() if self._sampled else next(self._source)
