"""torch's own collate, with two differences that do not show: tensors are stacked straight into a
slot, and columns of numbers are made by NumPy, which is faster at reading lists.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.collate import (
    collate,
    collate_float_fn,
    collate_int_fn,
    collate_numpy_scalar_fn,
    collate_tensor_fn,
    default_collate_fn_map,
)

from slipstream.loader.memory import ALIGNMENT, Bytes, tensor_at
from slipstream.store.format import align

_ORIGINALS: dict[Any, Callable[..., Any]] = {
    torch.Tensor: collate_tensor_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
}


class SlotCollate:
    """Collates one batch into `slot`, as far as it has room."""

    def __init__(self, slot: Bytes | None) -> None:
        self._slot = slot
        self._used = 0

    def collate(self, samples: Sequence[Any]) -> Any:
        """What `default_collate` makes of them, entries that the user has put into torch's map
        included.
        """
        return _collate(samples, {**_NUMBERS, torch.Tensor: self._stack})

    def _stack(self, tensors: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
        first = tensors[0]
        if not _stack_alike(tensors):
            return collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
        shape = (len(tensors), *first.shape)
        nbytes = first.nbytes * len(tensors)
        if self._slot is None or self._used + nbytes > self._slot.nbytes or nbytes == 0:
            out = torch.empty(shape, dtype=first.dtype, device="cpu")
        else:
            out = tensor_at(self._slot, self._used, first.dtype, shape)
            self._used += align(nbytes, ALIGNMENT)
        return torch.stack(tuple(tensors), 0, out=out)


def _stack_alike(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether memory of the first one's type is what torch would stack them into by itself."""
    first = tensors[0]
    dtype = first.dtype
    are_plain = all(
        type(tensor) is torch.Tensor
        and tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_nested
        for tensor in tensors
    )
    # Of four dimensions and more, it keeps the order that they have in memory.
    return are_plain and (first.ndim <= 3 or first.is_contiguous())


def _makes_here() -> bool:
    """Whether torch makes its tensors in this process's memory, where nobody says otherwise."""
    try:
        return torch.empty(0).is_cpu
    except Exception:  # on a device, which a forked process cannot have
        return False


def collate_here(samples: Sequence[Any]) -> Any:
    """What `default_collate` makes of samples in this process."""
    return _collate(samples, _NUMBERS)


def _collate(samples: Sequence[Any], ours: dict[Any, Callable[..., Any]]) -> Any:
    if not _makes_here():
        ours = {}
    own_map = {
        kind: ours[kind] if kind in ours and _ORIGINALS[kind] is function else function
        for kind, function in default_collate_fn_map.items()
    }
    return collate(samples, collate_fn_map=own_map)


def _ints(numbers: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
    column = np.array(numbers)
    if column.dtype != np.int64 or column.ndim != 1 or set(map(type, numbers)) != {int}:
        return torch.tensor(numbers)
    return torch.from_numpy(column)


def _floats(numbers: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
    if set(map(type, numbers)) != {float}:
        return torch.tensor(numbers, dtype=torch.float64)
    return torch.from_numpy(np.array(numbers))


def _numpy_scalars(numbers: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
    if len(set(map(type, numbers))) != 1 or numbers[0].dtype.kind not in "fiub":
        return torch.as_tensor(numbers)
    # torch's reading of the first one decides the type, as it decides that of all.
    dtype = torch.as_tensor([numbers[0]]).dtype
    return torch.from_numpy(np.array(numbers)).to(dtype)


_NUMBERS: dict[Any, Callable[..., Any]] = {
    (np.bool_, np.number, np.object_): _numpy_scalars,
    float: _floats,
    int: _ints,
}
