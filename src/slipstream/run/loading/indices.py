"""The indices of batches, asked for as torch asks, and ahead where that cannot be seen."""

import copy
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

# Looking at the next item changes nothing else. They hold what they give,
_PURE: tuple[type, ...] = (type(iter(range(0))), type(iter(range(1 << 70))))
# or the script does, which may change it meanwhile.
_PURE_FOR_NOW: tuple[type, ...] = (type(iter([])), type(iter(())))


class Indices:
    """Stands in for the iterator over a loader's sampler: an iterator over the same items.

    `ahead(n)` is the n-th item that was not given yet, or None where it cannot be known yet. What
    is drawn, from whichever generator, is drawn when torch would draw it. Where the item turns out
    to be another one when its turn comes, another object is given than the one seen ahead.
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
        # Where what comes may still change: an iterator whose copies go ahead, and such a copy.
        self._origin: Any = None
        self._scout: Iterator[Any] | None = None
        self.why_not = "the first batch was not asked for"

    def __iter__(self) -> "Indices":
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = self._begin()
        if self._origin is not None:
            return self._confirmed(next(self._iterator))
        if self._ahead:
            return self._ahead.popleft()
        return self._draw(self._iterator)

    def _confirmed(self, item: Any) -> Any:
        expected = self._ahead.popleft() if self._ahead else None
        if expected is not None and _is_same(item, expected):
            return expected
        self._ahead.clear()
        self._scout = None
        return item

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
                self._ahead.append(self._draw(self._iterator_ahead()))
            except StopIteration:
                self._left = 0
            except Exception:
                if self._origin is None:
                    raise
                self._left = 0  # it comes when its turn comes
        return self._ahead[place]

    def _iterator_ahead(self) -> Iterator[Any]:
        if self._origin is None:
            assert self._iterator is not None
            return self._iterator
        if self._scout is None:
            self._scout = map(_copied, self._batched(copy.copy(self._origin)))
        return self._scout

    def _begin(self) -> Iterator[Any]:
        sampler = self._sampler
        if type(sampler) is not BatchSampler:
            return self._batched(self._judge(sampler, self._begun, None))
        # Nothing of torch's own generator has run: ours begins in its place.
        return self._batched(
            self._judge(sampler.sampler, iter(sampler.sampler), sampler.batch_size)
        )

    def _batched(self, items: Iterator[Any]) -> Iterator[Any]:
        sampler = self._sampler
        if type(sampler) is not BatchSampler:
            return items
        return _batches(items, sampler.batch_size, sampler.drop_last)

    def _judge(self, sampler: Any, iterator: Any, batch_size: int | None) -> Any:
        """Whether one may look ahead. Returns the iterator, or another one over the same items."""
        self.why_not = ""
        self._is_pure = True
        kind = type(sampler)
        if type(iterator) in _PURE_FOR_NOW:
            self._origin = iterator
        elif kind is SubsetRandomSampler:
            self._origin = iterator = _Subset(sampler)
        elif type(iterator) in _PURE or kind in (SequentialSampler, WeightedRandomSampler):
            pass  # all is drawn with the first item
        elif kind is RandomSampler and sampler.generator is None:
            pass  # its generator is its own
        elif kind is RandomSampler and not sampler.replacement and _is_whole(sampler):
            # It draws again when it has come to its end, which is left to its moment.
            self._left = len(sampler) // (batch_size or 1)
        else:
            self._is_pure = False
            self.why_not = f"{kind.__name__} may draw random numbers with every batch"
        return iterator


class _Subset:
    """As SubsetRandomSampler goes through its indices, which it looks up one by one."""

    def __init__(self, sampler: SubsetRandomSampler) -> None:
        self._sampler = sampler
        self._order: list[int] | None = None
        self._place = 0

    def __iter__(self) -> "_Subset":
        return self

    def __next__(self) -> Any:
        sampler = self._sampler
        if self._order is None:
            count = len(sampler.indices)
            self._order = torch.randperm(count, generator=sampler.generator).tolist()
        if self._place >= len(self._order):
            raise StopIteration
        self._place += 1
        return sampler.indices[self._order[self._place - 1]]


def _is_whole(sampler: RandomSampler) -> bool:
    return sampler.num_samples == len(sampler.data_source)


def _batches(samples: Iterator[Any], batch_size: int, drop_last: bool) -> Iterator[list[Any]]:
    """As BatchSampler deals them."""
    while True:
        batch = [*itertools.islice(samples, batch_size)]
        if not batch or (drop_last and len(batch) < batch_size):
            return
        yield batch


def _copied(item: Any) -> Any:
    """What nobody changes."""
    return [*item] if type(item) is list else item


def _is_same(item: Any, other: Any) -> bool:
    if item is other:
        return True
    if type(item) is not type(other):
        return False
    try:
        if isinstance(item, (list, tuple)):
            return len(item) == len(other) and all(map(_is_same, item, other))
        return bool(item == other)
    except Exception:  # cannot be compared
        return False
