"""What every source of samples offers, and the reading ahead that file sources share."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from slipstream.store.schema import Field

Task = TypeVar("Task")
_READ_THREADS = 4
_AHEAD_ITEMS = 64
_AHEAD_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """One sample of a source: a value per field, or the reason why it cannot be had.

    Pictures are the bytes of their file. `key` names the item in messages.
    """

    key: str
    values: tuple[Any, ...] = ()
    error: str = ""


class Source(Protocol):
    """An ordered list of samples. The same source always gives the same items in the same order."""

    @property
    def kind(self) -> str:
        """What sort of source this is, for the manifest."""
        ...

    @property
    def fields(self) -> tuple[Field, ...]:
        """The schema of its items."""
        ...

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names that the field `label` numbers."""
        ...

    @property
    def length(self) -> int | None:
        """Number of items; None where nobody knows, and then packing cannot be continued."""
        ...

    @property
    def total_bytes(self) -> int | None:
        """Bytes of the source, where that is known."""
        ...

    @property
    def digest(self) -> str:
        """A hash of names and sizes: the same for a copy of the source elsewhere."""
        ...

    @property
    def stamp(self) -> str:
        """A hash that also changes when a file is touched; guards the continuation of a pack."""
        ...

    @property
    def remarks(self) -> list[str]:
        """What the user should know, such as files that were left aside."""
        ...

    def items(self, start: int) -> Iterator[Item]:
        """Items from number `start` on, without reading those before."""
        ...


def read_ahead(
    tasks: Sequence[Task],
    start: int,
    read: Callable[[Task], Item],
    task_bytes: Callable[[Task], int],
) -> Iterator[Item]:
    """`read(task)` for every task from `start` on, in order, with a few reads running ahead.

    No more than some dozen megabytes are read ahead, by what `task_bytes` says.
    """
    running: deque[tuple[Future[Item], int]] = deque()
    ahead_bytes = 0
    position = start
    with ThreadPoolExecutor(_READ_THREADS) as pool:
        try:
            while running or position < len(tasks):
                while position < len(tasks) and (
                    not running or (len(running) < _AHEAD_ITEMS and ahead_bytes < _AHEAD_BYTES)
                ):
                    size = task_bytes(tasks[position])
                    running.append((pool.submit(read, tasks[position]), size))
                    ahead_bytes += size
                    position += 1
                future, size = running.popleft()
                ahead_bytes -= size
                yield future.result()
        finally:
            for future, _ in running:
                future.cancel()


def hash_lines(lines: Iterable[str]) -> str:
    """A short hash of some lines of text.

    >>> hash_lines(["a", "b"]) == hash_lines(["a", "b"])
    True
    """
    total = hashlib.sha256()
    for line in lines:
        total.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return total.hexdigest()[:32]
