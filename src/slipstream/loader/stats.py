"""What a loader has done so far, in seconds, bytes and batches."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from slipstream.loader.made import Made

_MOST_ITEMS = 64


def bytes_of(batch: Any) -> int:
    """Bytes of the tensors of a batch.

    >>> bytes_of({"x": torch.zeros(2, 3), "key": ["a", "b"]})
    24
    """
    return sum(tensor.nbytes for tensor in _tensors_of(batch))


def samples_in(batch: Any, expected: int) -> int:
    """How many samples a batch holds that was to have `expected`; the last one may have fewer.

    >>> samples_in([torch.zeros(3, 8), torch.zeros(3)], 4)
    3
    """
    sizes = {len(tensor) for tensor in _tensors_of(batch) if tensor.ndim > 0}
    return sizes.pop() if len(sizes) == 1 and max(sizes) < expected else expected


def _tensors_of(batch: Any, depth: int = 3) -> list[torch.Tensor]:
    """Tensors near the top of a batch, in plain containers: counting must cost nothing, and look
    at nothing that computes its items.
    """
    if isinstance(batch, torch.Tensor):
        return [batch]
    items = batch.values() if type(batch) is dict else batch
    is_plain = type(batch) in (dict, list) or isinstance(batch, tuple)
    if not is_plain or depth == 0 or len(items) > _MOST_ITEMS:
        return []
    return [tensor for item in items for tensor in _tensors_of(item, depth - 1)]


@dataclass
class Stats:
    """Sums over all epochs. Seconds of making batches are of all workers together and run beside
    the training loop; `wait_s` is what the loop itself waited, `loop_s` what it did in between.
    """

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    wait_s: float = 0.0
    first_wait_s: float = 0.0
    loop_s: float = 0.0
    fetch_s: float = 0.0
    collate_s: float = 0.0
    cpu_s: float = 0.0
    ready_sum: int = 0
    copy_bytes: int = 0
    pin_s: float = 0.0

    def add(self, made: Made, wait_s: float, ready: int) -> None:
        """Count one delivered batch; `ready` more were waiting behind it."""
        if self.batches == 0:
            self.first_wait_s = wait_s
        self.batches += 1
        self.samples += made.samples
        self.bytes += made.nbytes
        self.wait_s += wait_s
        self.fetch_s += made.fetch_s
        self.collate_s += made.collate_s
        self.cpu_s += made.cpu_s
        self.ready_sum += ready

    def report(self) -> dict[str, Any]:
        """All of it as plain numbers, with the means that one looks at first.

        >>> Stats().report()["wait_share"]
        0.0
        """
        seen = asdict(self)
        ready_sum = seen.pop("ready_sum")
        total_s = self.wait_s + self.loop_s
        seen["queue_depth"] = ready_sum / self.batches if self.batches else 0.0
        seen["wait_share"] = self.wait_s / total_s if total_s else 0.0
        seen["samples_per_s"] = self.samples / total_s if total_s else 0.0
        return seen
