"""The indices of batches, asked for as torch asks, and ahead where that cannot be seen."""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

# They hold what they give; looking at the next item changes nothing else.
_PURE: tuple[type, ...] = (
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
    type(iter(range(1 << 70))),
)
# These draw all they need when their first item is asked for.
_DRAW_FIRST = (SubsetRandomSampler, WeightedRandomSampler)


class Indices:
    """Stands in for the iterator over a loader's sampler: an iterator over the same items.

    `ahead(n)` is the n-th item that was not given yet, or None where it cannot be known yet. What
    is drawn, from whichever generator, is drawn when torch would draw it.
    """

    def __init__(self, sampler: Any, begun: Iterator[Any]) -> None:
        """`sampler` is the loader's batch sampler, or its sampler where there are no batches, and
        `begun` the iterator over it that torch has made and asked for nothing.
        """
        self._sampler = sampler
        self._begun = begun
        self._iterator: Iterator[Any] | None = None
        self._ahead: deque[Any] = deque()
        self._is_pure = False
        self._left: int | None = None  # items that may be looked at ahead; None: all
        self.why_not = "the first batch was not asked for"

    def __iter__(self) -> "Indices":
        return self

    def __next__(self) -> Any:
        if self._ahead:
            return self._ahead.popleft()
        if self._iterator is None:
            self._iterator = self._begin()
        return self._draw(self._iterator)

    def _draw(self, iterator: Iterator[Any]) -> Any:
        if self._left is not None:
            self._left -= 1
        return next(iterator)

    def ahead(self, place: int) -> Any:
        """See the class."""
        if not self._is_pure or self._iterator is None:
            return None
        while len(self._ahead) <= place:
            if self._left is not None and self._left <= 0:
                return None
            try:
                self._ahead.append(self._draw(self._iterator))
            except StopIteration:
                self._left = 0
        return self._ahead[place]

    def _begin(self) -> Iterator[Any]:
        sampler = self._sampler
        if type(sampler) is not BatchSampler:
            self._judge(sampler, self._begun, None)
            return self._begun
        # Nothing of torch's own generator has run: ours begins in its place.
        inner = iter(sampler.sampler)
        self._judge(sampler.sampler, inner, sampler.batch_size)
        return _batches(inner, sampler.batch_size, sampler.drop_last)

    def _judge(self, sampler: Any, iterator: Any, batch_size: int | None) -> None:
        self.why_not = ""
        kind = type(sampler)
        if type(iterator) in _PURE or kind in (SequentialSampler, *_DRAW_FIRST):
            self._is_pure = True
        elif kind is RandomSampler and sampler.generator is None:
            self._is_pure = True  # its generator is its own
        elif kind is RandomSampler and not sampler.replacement and _is_whole(sampler):
            # It draws again when it has come to its end, which is left to its moment.
            self._is_pure = True
            self._left = len(sampler) // (batch_size or 1)
        else:
            self.why_not = f"{kind.__name__} may draw random numbers with every batch"


def _is_whole(sampler: RandomSampler) -> bool:
    return sampler.num_samples == len(sampler.data_source)


def _batches(samples: Iterator[Any], batch_size: int, drop_last: bool) -> Iterator[list[Any]]:
    """As BatchSampler deals them."""
    while True:
        batch = [*itertools.islice(samples, batch_size)]
        if not batch or (drop_last and len(batch) < batch_size):
            return
        yield batch
