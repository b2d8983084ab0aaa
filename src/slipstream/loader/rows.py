"""Batches of a TensorDataset: all rows of a batch in one gather instead of one by one."""

import operator
import time
from typing import Any

import numpy as np
import torch

from slipstream.loader.made import Made
from slipstream.loader.memory import Memory, RecycledMemory
from slipstream.loader.plan import Task
from slipstream.loader.route import without_subsets

# Not every dtype can be gathered; all bits can.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SMALL_BYTES = 1 << 14


class TensorRows:
    """Makes the batches that torch collates of `dataset[i]` for each i."""

    def __init__(self, dataset: Any, memory: Memory) -> None:
        base, chosen = without_subsets(dataset)
        self._tensors = [t.resolve_conj().resolve_neg() for t in base.tensors]
        self._chosen = None if chosen is None else torch.as_tensor(chosen, dtype=torch.int64)
        self._memory = memory
        self._is_recycled = isinstance(memory, RecycledMemory)
        self._row_bytes = self.row_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one sample."""
        return sum(t.nbytes // max(1, len(t)) for t in self._tensors)

    def make(self, task: Task) -> Made:
        """One batch. Raises IndexError for a number that is not there."""
        began = time.perf_counter()
        rows = torch.from_numpy(np.asarray([operator.index(i) for i in task.indices], np.int64))
        if self._chosen is not None:
            rows = self._chosen[rows]
        # Fresh memory of some pages costs less than minding it.
        is_small = self._is_recycled and len(rows) * self._row_bytes < _SMALL_BYTES
        batch = []
        for tensor in self._tensors:
            bits = _BITS.get(tensor.dtype.itemsize, tensor.dtype)
            places = _checked(rows, len(tensor))
            if is_small:
                batch.append(tensor.view(bits).index_select(0, places).view(tensor.dtype))
                continue
            out = self._memory.empty((len(rows), *tensor.shape[1:]), tensor.dtype)
            torch.index_select(tensor.view(bits), 0, places, out=out.view(bits))
            batch.append(out)
        nbytes = sum(out.nbytes for out in batch)
        return Made(batch, len(rows), nbytes, fetch_s=time.perf_counter() - began)


def _checked(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Rows counted from the beginning. Raises what indexing the tensor raises."""
    if len(rows) == 0:
        return rows
    low, high = (int(bound) for bound in torch.aminmax(rows))
    if low < -count or high >= count:
        wrong = next(row for row in rows.tolist() if not -count <= row < count)
        raise IndexError(f"index {wrong} is out of bounds for dimension 0 with size {count}")
    return torch.where(rows < 0, rows + count, rows) if low < 0 else rows
