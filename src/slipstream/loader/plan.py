"""Which samples come in which batch of which rank: pure functions of a few integers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream import _native

Indices = npt.NDArray[np.int64]
_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Task:
    """One batch to be made. `key` numbers it among all that an epoch can hold, whoever makes it;
    `before` and `after` are the epoch's positions around it.
    """

    key: int
    indices: Any
    after: int
    before: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The order of an epoch, cut into batches and dealt to ranks.

    A position counts samples that all ranks together have had. One step takes `world * batch_size`
    of them, each rank a run of its own; so any number of ranks can go on from any position. Every
    rank has the same number of batches. At the end of an epoch the batches get smaller, evenly;
    samples are repeated only where the last step has fewer of them than there are ranks: with
    batches of one, or hardly any samples left.

    >>> plan = Plan(samples=10, batch_size=2, world=2)
    >>> [task.indices for task in plan.tasks(epoch=0)]
    [[0, 1], [4, 5], [8]]
    """

    samples: int
    batch_size: int
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0
    rank: int = 0
    world: int = 1

    def __len__(self) -> int:
        """Batches of an epoch, on this rank as on any other."""
        step = self.world * self.batch_size
        return self.samples // step if self.drop_last else -(-self.samples // step)

    def advance(self, position: int) -> int:
        """The position after the step that begins at `position`; the same where none is left."""
        left = self.samples - position
        full = self.world * self.batch_size
        if left <= full:
            return position if self.drop_last and left < full else self.samples
        surplus = left - full
        if not self.drop_last and surplus < self.world and self.batch_size > 1:
            # The last step could not give every rank a sample: share with the one before it.
            return position + (left + 1) // 2
        return position + full

    def share(self, position: int, after: int) -> range:
        """This rank's part of the positions of one step."""
        count = after - position
        if count < self.world:
            first = position + self.rank % count
            return range(first, first + 1)
        even, extra = divmod(count, self.world)
        first = position + self.rank * even + min(self.rank, extra)
        return range(first, first + even + (self.rank < extra))

    def order(self, epoch: int) -> "Order":
        """Which sample stands at which position of an epoch."""
        return Order(self.samples, self.seed, epoch) if self.shuffle else Order(self.samples)

    def tasks(self, epoch: int, position: int = 0) -> Iterator[Task]:
        """This rank's batches from `position` on."""
        order = self.order(epoch)
        # Many positions at a time: asking for a few costs as much.
        known, first = list[int](), 0
        while (after := self.advance(position)) > position:
            places = self.share(position, after)
            if places.start < first or places.stop > first + len(known):
                first = places.start
                stop = min(self.samples, max(places.stop, first + _CHUNK))
                known = order.at(np.arange(first, stop, dtype=np.int64)).tolist()
            yield Task(
                places.start, known[places.start - first : places.stop - first], after, position
            )
            position = after


class Order:
    """A permutation of `count` samples that is computed, not stored; without a seed, none.

    >>> sorted(Order(5, seed=1, epoch=0).at(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, count: int, seed: int | None = None, epoch: int = 0) -> None:
        self._native = None if seed is None else _native.Order(count, seed, epoch)

    def at(self, positions: Indices) -> Indices:
        """The samples at these positions."""
        if self._native is None:
            return positions
        samples: Indices = self._native.at(positions)
        return samples
