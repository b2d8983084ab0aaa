"""The tensors of a batch, as plain facts."""

from typing import Any

import numpy as np
import torch

from slipstream.doctor.capture import Loader

_MOST_TENSORS = 64


def describe_batch(batch: Any, loader: Loader) -> None:
    """Note the tensors of a batch that the loop has just got."""
    found: list[list[Any]] = []
    _walk(batch, "", found, 0)
    loader.tensors = found
    loader.batch_bytes = sum(entry[3] for entry in found)
    # Of NumPy, and so pickled byte by byte on their way from a worker.
    loader.facts["array_bytes"] = _array_bytes(batch, 0)


def _walk(thing: Any, path: str, found: list[list[Any]], depth: int) -> None:
    if len(found) >= _MOST_TENSORS or depth > 6:
        return
    if isinstance(thing, torch.Tensor):
        found.append(
            [
                path or "batch", str(thing.dtype).removeprefix("torch."), list(thing.shape),
                bytes_of(thing),
                thing.device.type == "cpu" and torch.cuda.is_available() and is_pinned(thing),
                thing.layout == torch.strided and is_dense(thing), thing.device.type,
            ]
        )  # fmt: skip
    elif isinstance(thing, dict):
        for key, value in thing.items():
            _walk(value, f"{path}.{key}" if path else str(key), found, depth + 1)
    elif isinstance(thing, (list, tuple)):
        for number, value in enumerate(thing):
            _walk(value, f"{path}[{number}]", found, depth + 1)


def _array_bytes(thing: Any, depth: int) -> int:
    if depth > 3:
        return 0
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, (list, tuple)):
        return sum(_array_bytes(part, depth + 1) for part in thing[:_MOST_TENSORS])
    return 0


def bytes_of(tensor: torch.Tensor) -> int:
    """Of tensors in parts, such as sparse ones, nobody says."""
    return tensor.nbytes if tensor.layout == torch.strided else 0


def is_pinned(tensor: torch.Tensor) -> bool:
    """Not all kinds of tensors can say."""
    try:
        return tensor.is_pinned()
    except RuntimeError:
        return False


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements lie side by side in an order that libraries know."""
    if tensor.is_contiguous():
        return True
    if tensor.ndim == 4:
        return tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor.ndim == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d)
