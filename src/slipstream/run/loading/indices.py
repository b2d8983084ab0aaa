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
        self._size: int | None = None  # of the batches in there
        self._whole: int | None = None  # of all batches, where a smaller one is dropped
        self._again: deque[Any] = deque()  # samples of theirs that go into others
        self._is_pure = False
        self._left: int | None = None  # samples that may be looked at ahead; None: all
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
        if self._ahead and self._size_now() != self._size:
            self._again.extend(itertools.chain.from_iterable(self._ahead))
            self._ahead.clear()
            self._left = 0
        if not self._ahead:
            return self._draw()
        return self._filled(self._ahead.popleft())

    def _filled(self, item: Any) -> Any:
        """The last batch, as seen ahead, where there were no more samples then."""
        size = self._size_now()
        if size is None or len(item) == size:
            return item
        more = self._samples(size - len(item))
        return [*item, *more] if more else item

    def _confirmed(self, item: Any) -> Any:
        expected = self._ahead.popleft() if self._ahead else None
        if expected is not None and _is_same(item, expected):
            return expected
        self._ahead.clear()
        self._scout = None
        return item

    def _size_now(self) -> int | None:
        """None where there are no batches. Where the last is dropped, torch asks but once."""
        if type(self._sampler) is not BatchSampler:
            return None
        return self._whole if self._whole is not None else int(self._sampler.batch_size)

    def _draw(self, most: int | None = None) -> Any:
        """As torch does it now; with `most`, of so many samples, and behind them nothing."""
        size = self._size_now()
        if size is None:
            found = self._samples(1)
        else:
            found = self._samples(size if most is None else min(size, most))
            if self._whole is not None and len(found) < size:
                found = []
        if not found:
            raise StopIteration
        return found[0] if size is None else found

    def _samples(self, count: int) -> list[Any]:
        assert self._iterator is not None
        found = [self._again.popleft() for _ in range(min(count, len(self._again)))]
        found += itertools.islice(self._iterator, count - len(found))
        if self._left is not None:
            self._left = max(0, self._left - len(found))
        return found

    def ahead(self, place: int) -> Any:
        """See the class."""
        if not self._is_pure or self._iterator is None:
            return None
        while len(self._ahead) <= place:
            if self._is_at_end():
                return None
            try:
                self._ahead.append(self._next_ahead())
            except StopIteration:
                self._left = 0
            except Exception:
                if self._origin is None:
                    raise
                self._left = 0  # it comes when its turn comes
        return self._ahead[place]

    def _is_at_end(self) -> bool:
        """Whether more would be known only when its turn comes."""
        if self._left is None:
            return False
        size = self._size_now()
        least = 1 if self._whole is None else self._whole
        return self._left < least or (bool(self._ahead) and size != self._size)

    def _next_ahead(self) -> Any:
        if self._origin is None:
            self._size = self._size_now()
            return self._draw(self._left)
        if self._scout is None:
            self._scout = map(_copied, self._batched(copy.copy(self._origin)))
        return next(self._scout)

    def _begin(self) -> Iterator[Any]:
        sampler = self._sampler
        if type(sampler) is not BatchSampler:
            return self._judge(sampler, self._begun)
        # Nothing of torch's own generator has run: ours begins in its place.
        samples = self._judge(sampler.sampler, iter(sampler.sampler))
        self._whole = int(sampler.batch_size) if sampler.drop_last else None
        return self._batched(samples) if self._origin is not None else samples

    def _batched(self, items: Iterator[Any]) -> Iterator[Any]:
        sampler = self._sampler
        return self._batches(items) if type(sampler) is BatchSampler else items

    def _batches(self, samples: Iterator[Any]) -> Iterator[list[Any]]:
        """As BatchSampler deals them."""
        while size := self._size_now():
            batch = [*itertools.islice(samples, size)]
            if not batch or (self._whole is not None and len(batch) < size):
                return
            yield batch

    def _judge(self, sampler: Any, iterator: Any) -> Iterator[Any]:
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
        elif kind is RandomSampler and not sampler.replacement and _is_whole(sampler):
            # It looks and draws again when it has come to its end, which is left to its moment.
            self._left = len(sampler)
        elif kind is RandomSampler and sampler.generator is None:
            pass  # its generator is its own
        else:
            self._is_pure = False
            self.why_not = f"{kind.__name__} may draw random numbers with every batch"
        return iterator  # type: ignore[no-any-return]


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
