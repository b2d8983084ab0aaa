"""The order of an epoch as a torch sampler, for whoever takes a loader apart."""

import weakref
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
from torch.utils.data import RandomSampler, SequentialSampler

from slipstream.loader.plan import Order

_CHUNK = 1 << 16


class _TellsLoader:
    """Hands `set_epoch` on to its loader, which frameworks do not call."""

    next_epoch = 0
    _loader: Any = None

    def follow(self, loader: Any) -> None:
        """This is the loader."""
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch next."""
        self.next_epoch = epoch
        loader = self._loader() if self._loader is not None else None
        if loader is not None and loader.sampler is self:
            loader.set_epoch(epoch)

    def __getstate__(self) -> dict[str, Any]:
        """All but the loader: a copy has none, or its own."""
        return {**self.__dict__, "_loader": None}


class OrderedSampler(_TellsLoader, SequentialSampler):
    """All samples, one after the other. What is random of them changes with the epoch."""


class ShuffledSampler(_TellsLoader, RandomSampler):
    """All samples in the keyed order of (seed, epoch), the same in every process. Each iteration is
    the next epoch; `set_epoch` chooses it.
    """

    def __init__(self, data_source: Sized, *, seed: int) -> None:
        super().__init__(data_source)
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        """Numbers of all samples."""
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        count = len(self.data_source)
        order = Order(count, self.seed, epoch)
        for start in range(0, count, _CHUNK):
            stop = min(start + _CHUNK, count)
            yield from order.at(np.arange(start, stop, dtype=np.int64)).tolist()
