"""The order of an epoch as a torch sampler, for whoever takes a loader apart."""

from collections.abc import Iterator, Sized

import numpy as np
from torch.utils.data import RandomSampler

from slipstream.loader.plan import Order

_CHUNK = 1 << 16


class ShuffledSampler(RandomSampler):
    """All samples in the keyed order of (seed, epoch), the same in every process. Each iteration is
    the next epoch; `set_epoch` chooses it.
    """

    def __init__(self, data_source: Sized, *, seed: int) -> None:
        super().__init__(data_source)
        self.seed = seed
        self.next_epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch next."""
        self.next_epoch = epoch

    def __iter__(self) -> Iterator[int]:
        """Numbers of all samples."""
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        count = len(self.data_source)
        order = Order(count, self.seed, epoch)
        for start in range(0, count, _CHUNK):
            stop = min(start + _CHUNK, count)
            yield from order.at(np.arange(start, stop, dtype=np.int64)).tolist()
