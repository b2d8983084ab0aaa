"""What a batch is, bit for bit, and whether it can travel."""

import hashlib
import math
from typing import Any

import numpy as np
import torch

from slipstream.loader.parcel import Leaf, wrap


def digest(batch: Any) -> str:
    """Of its structure, its values, and how its tensors lie in memory."""
    parcel = wrap(batch)
    found = hashlib.blake2b(parcel.skeleton, digest_size=16)
    for leaf in parcel.leaves:
        found.update(repr((leaf.dtype, tuple(leaf.shape), _strides(leaf))).encode())
        found.update(memoryview(np.ascontiguousarray(_bytes_of(leaf))))
    return found.hexdigest()


def trouble(first: Any, second: Any) -> str:
    """Why a batch cannot be handed over from another process, or an empty string. `second` was
    made like `first`: memory that both have is not theirs.
    """
    leaves, others = wrap(first).leaves, wrap(second).leaves
    if any(not _is_usual(leaf) for leaf in leaves):
        return "its tensors lie in memory in a way that would be lost"
    places = [_memory(leaf) for leaf in leaves if leaf.nbytes]
    if set(places) & {_memory(leaf) for leaf in others if leaf.nbytes}:
        return "its tensors are the dataset's own"
    if len(set(places)) < len(places):
        return "its tensors share memory"
    return ""


def _is_usual(leaf: Leaf) -> bool:
    """Where a tensor is contiguous it can have other strides than the usual ones."""
    if isinstance(leaf, np.ndarray) or not leaf.is_contiguous():
        return True
    usual = [math.prod(max(1, n) for n in leaf.shape[k + 1 :]) for k in range(leaf.ndim)]
    return list(leaf.stride()) == usual


def _strides(leaf: Leaf) -> tuple[int, ...]:
    return tuple(leaf.strides if isinstance(leaf, np.ndarray) else leaf.stride())


def _bytes_of(leaf: Leaf) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)


def _memory(leaf: Leaf) -> int:
    if isinstance(leaf, torch.Tensor):
        return leaf.untyped_storage().data_ptr()
    owner: Any = leaf
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return int(owner.ctypes.data)
