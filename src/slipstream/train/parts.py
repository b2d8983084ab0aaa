"""Batches cut into micro-batches. `size_of` and `cut` need torch alone: they are a part of the code
that a recipe gives away.
"""

import copy
from collections.abc import Iterator
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer.leaves import tensors_of


def size_of(batch: Any) -> int:
    """Samples in a batch: the first dimension of the first tensor that has one; 0 without any."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 0
    values = batch.values() if isinstance(batch, dict) else batch
    if not isinstance(batch, (dict, list, tuple)):
        return 0
    return next((size for value in values if (size := size_of(value))), 0)


def cut(batch: Any, start: int, end: int, size: int) -> Any:
    """Some samples of a batch of `size`. Tensors are views; lists of plain values that are as long
    as the batch are cut, too.
    """
    if isinstance(batch, torch.Tensor):
        return batch[start:end] if batch.dim() else batch
    if isinstance(batch, dict):
        made = copy.copy(batch)  # of its own class
        made.update({name: cut(value, start, end, size) for name, value in batch.items()})
        return made
    if not isinstance(batch, (list, tuple)):
        return batch
    plain = (str, bytes, int, float, type(None))
    if len(batch) == size and all(isinstance(value, plain) for value in batch):
        return batch[start:end]
    values = [cut(value, start, end, size) for value in batch]
    return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)


def expect_cuttable(batch: Any) -> int:
    """Samples in a batch. Raises `UsageError` for one that cannot be cut into samples."""
    size = size_of(batch)
    if kind := _one_for_each(batch, size):
        raise UsageError(
            f"A batch of {size} holds a list of {size} {kind}, which may be one for each sample, "
            "and is not cut into micro-batches; expected tensors in tuples, lists and dicts, and "
            "no inner list as long as the batch."
        )
    if whole := _left_whole(batch):
        raise UsageError(
            f"A batch holds a {whole}, which cannot be cut into micro-batches; expected tensors in "
            "tuples, lists and dicts."
        )
    sizes = sorted({len(tensor) for tensor in _tensors(batch) if tensor.dim()})
    if sizes != [size] or not size:
        raise UsageError(
            f"A batch with first dimensions {sizes} cannot be cut into micro-batches; expected "
            "tensors in tuples, lists and dicts that all have as many rows as there are samples."
        )
    return size


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Those that `cut` finds."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, (dict, list, tuple)):
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from _tensors(value)


def _one_for_each(batch: Any, size: int) -> str | None:
    """What a list, inside of it, holds of which there are as many as samples."""
    if not isinstance(batch, (dict, list, tuple)):
        return None
    for value in batch.values() if isinstance(batch, dict) else batch:
        if isinstance(value, (list, tuple)) and len(value) == size > 0:
            if all(isinstance(each, dict) for each in value):
                return "dicts"
            if size > 1 and all(isinstance(each, torch.Tensor) and each.dim() for each in value):
                return "tensors"
        if found := _one_for_each(value, size):
            return found
    return None


def _left_whole(batch: Any) -> str | None:
    """What `cut` would give every micro-batch as it is, though it holds samples."""
    if isinstance(batch, torch.Tensor):
        return None
    if isinstance(batch, (dict, list, tuple)):
        values = batch.values() if isinstance(batch, dict) else batch
        return next((found for value in values if (found := _left_whole(value))), None)
    holds_samples = bool(getattr(batch, "ndim", 0)) or any(t.dim() for t in tensors_of(batch))
    return type(batch).__name__ if holds_samples else None
