"""A batch on its way between processes: tensors lie in a shared slot, the rest is pickled.

`wrap` takes any batch apart without knowing its structure: pickle walks it, and every tensor or
array that can lie in a slot is left behind as a number. What cannot (sparse tensors, subclasses,
tensors that are shared already, …) travels as torch sends it.
"""

import io
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from slipstream.errors import InternalError
from slipstream.loader.memory import ALIGNMENT, Bytes, tensor_at

Leaf = torch.Tensor | npt.NDArray[Any]
Place = tuple[int, Any, tuple[int, ...], tuple[int, ...] | None]


@dataclass(slots=True)
class Parcel:
    """A batch taken apart: its pickled skeleton and the leaves that go into a slot."""

    skeleton: bytes
    leaves: list[Leaf]

    @property
    def nbytes(self) -> int:
        """Bytes of a slot that holds all leaves."""
        return sum(_aligned(leaf.nbytes) for leaf in self.leaves)


def wrap(batch: Any) -> Parcel:
    """Take a batch apart."""
    buffer = io.BytesIO()
    pickler = _Wrapper(buffer)
    pickler.dump(batch)
    return Parcel(buffer.getvalue(), pickler.leaves)


def place(leaves: Sequence[Leaf], slot: Bytes | None) -> list[Place]:
    """Copy leaves into the slot, unless they lie there already, and say where they are. There may
    be no slot if none of them has bytes.
    """
    if slot is None:
        return [(0, *_describe(leaf)) for leaf in leaves]
    start, end = slot.ctypes.data, slot.ctypes.data + slot.nbytes
    offsets = [_address(leaf) - start for leaf in leaves]
    inside = [0 <= offset < end - start for offset in offsets]
    used = max(
        (
            _aligned(o + leaf.nbytes)
            for o, leaf, i in zip(offsets, leaves, inside, strict=True)
            if i
        ),
        default=0,
    )
    places: list[Place] = []
    for offset, leaf, is_inside in zip(offsets, leaves, inside, strict=True):
        at = offset
        if not is_inside:
            at = used
            used += _aligned(leaf.nbytes)
            _copy(leaf, slot, at)
        places.append((at, *_describe(leaf)))
    return places


def unwrap(skeleton: bytes, places: Sequence[Place], memory: Bytes | None) -> Any:
    """Put a batch together again on lent memory."""
    return _Unwrapper(skeleton, places, memory).load()


class _Wrapper(ForkingPickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5)
        self.leaves: list[Leaf] = []

    def reducer_override(self, value: object) -> Any:
        kind = type(value)
        if (kind is torch.Tensor and _is_plain(value)) or (  # type: ignore[arg-type]
            kind is np.ndarray and not value.dtype.hasobject and value.flags.c_contiguous  # type: ignore[attr-defined]
        ):
            self.leaves.append(value)  # type: ignore[arg-type]
            return _leaf, (len(self.leaves) - 1,)
        return NotImplemented


class _Unwrapper(pickle.Unpickler):
    def __init__(self, skeleton: bytes, places: Sequence[Place], memory: Bytes | None) -> None:
        super().__init__(io.BytesIO(skeleton))
        self._places = places
        self._memory = memory

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == _leaf.__name__:
            return self._take
        return super().find_class(module, name)

    def _take(self, number: int) -> Leaf:
        offset, dtype, shape, strides = self._places[number]
        if self._memory is None:
            # Only what has no bytes goes without a slot.
            is_array = isinstance(dtype, np.dtype)
            return np.empty(shape, dtype) if is_array else torch.empty(shape, dtype=dtype)
        if isinstance(dtype, np.dtype):
            return np.ndarray(shape, dtype, self._memory, offset)
        if strides is None:
            return tensor_at(self._memory, offset, dtype, shape)
        count = math.prod(shape)
        return tensor_at(self._memory, offset, dtype, (count,)).as_strided(shape, strides)


def _leaf(number: int) -> Leaf:
    raise InternalError(f"Leaf {number} of a batch was unpickled without its slot.")


def _describe(leaf: Leaf) -> tuple[Any, tuple[int, ...], tuple[int, ...] | None]:
    if isinstance(leaf, torch.Tensor):
        strides = None if leaf.is_contiguous() else leaf.stride()
        return leaf.dtype, tuple(leaf.shape), strides
    return leaf.dtype, leaf.shape, None


def _copy(leaf: Leaf, slot: Bytes, offset: int) -> None:
    if leaf.nbytes == 0:
        return
    if isinstance(leaf, torch.Tensor):
        target = tensor_at(slot, offset, leaf.dtype, (leaf.numel(),))
        target.as_strided(leaf.shape, leaf.stride()).copy_(leaf)
    else:
        np.ndarray(leaf.shape, leaf.dtype, slot, offset)[...] = leaf


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_shared()  # type: ignore[no-untyped-call]
        and not tensor.__dict__
        and (tensor.is_contiguous() or _is_dense(tensor))
    )


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie without gaps or overlaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _address(leaf: Leaf) -> int:
    return leaf.data_ptr() if isinstance(leaf, torch.Tensor) else leaf.ctypes.data
