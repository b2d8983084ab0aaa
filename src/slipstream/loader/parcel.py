"""A batch on its way between processes: tensors lie in a shared slot, the rest is pickled.

`wrap` takes any batch apart without knowing its structure: pickle walks it, and every tensor or
array that can lie in a slot is left behind as a number. What cannot (sparse tensors, subclasses,
tensors that are shared already, …) travels as torch sends it.
"""

import io
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from slipstream.errors import InternalError
from slipstream.loader.memory import ALIGNMENT, Bytes, tensor_at
from slipstream.loader.structure import is_dense
from slipstream.store.format import align

Leaf = torch.Tensor | npt.NDArray[Any]
Place = tuple[int, Any, tuple[int, ...], tuple[int, ...] | None]
# A part of a batch is small if it is this many times smaller than the slot, and all of them are if
# they are so together.
_SMALL = 16
_SMALL_TOGETHER = 8


@dataclass(slots=True)
class Parcel:
    """A batch taken apart: its pickled skeleton and the leaves that go into a slot."""

    skeleton: bytes
    leaves: list[Leaf]

    @property
    def nbytes(self) -> int:
        """Bytes of a slot that holds all leaves."""
        return sum(align(leaf.nbytes, ALIGNMENT) for leaf in self.leaves)


def wrap(batch: Any) -> Parcel:
    """Take a batch apart."""
    parcel = wrap_each(batch)
    memory = [_storage(leaf) for leaf in parcel.leaves]
    shared = {one for one in memory if one is not None and memory.count(one) > 1}
    # Views of one tensor stay such, as torch sends them.
    return _wrapped(batch, frozenset(shared)) if shared else parcel


def wrap_each(batch: Any) -> Parcel:
    """The same with views of one tensor as tensors of their own."""
    return _wrapped(batch, frozenset())


def _wrapped(batch: Any, left_out: frozenset[int | None]) -> Parcel:
    buffer = io.BytesIO()
    pickler = _Wrapper(buffer, left_out)
    pickler.dump(batch)
    return Parcel(buffer.getvalue(), pickler.leaves)


def _storage(leaf: Leaf) -> int | None:
    """Where the memory of a tensor begins. Arrays are copied by torch, too."""
    is_tensor = isinstance(leaf, torch.Tensor) and leaf.nbytes
    return leaf.untyped_storage().data_ptr() if is_tensor else None  # type: ignore[union-attr]


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
            align(o + leaf.nbytes, ALIGNMENT)
            for o, leaf, i in zip(offsets, leaves, inside, strict=True)
            if i
        ),
        default=0,
    )
    outside = sum(
        align(leaf.nbytes, ALIGNMENT) for leaf, i in zip(leaves, inside, strict=True) if not i
    )
    if used and used + outside > slot.nbytes:
        # What lies in the slot already has gaps between it, left by tensors that were thrown away.
        own = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf.copy() for leaf in leaves]
        return place(own, slot)
    places: list[Place] = []
    for offset, leaf, is_inside in zip(offsets, leaves, inside, strict=True):
        at = offset
        if not is_inside:
            at = used
            used += align(leaf.nbytes, ALIGNMENT)
            _copy(leaf, slot, at)
        places.append((at, *_describe(leaf)))
    return places


def unwrap(
    skeleton: bytes, places: Sequence[Place], memory: Bytes | None, *, copies_small: bool = True
) -> Any:
    """Put a batch together again on lent memory. Small parts beside large ones are copied out of
    it: labels that are kept would keep the pictures' memory.
    """
    small = _small(places, memory.nbytes) if copies_small and memory is not None else frozenset()
    return _Unwrapper(skeleton, partial(_take, places, memory, small)).load()


def _small(places: Sequence[Place], nbytes: int) -> frozenset[int]:
    """Numbers of leaves that are worth little of a slot's memory, each and together."""
    sizes = [dtype.itemsize * math.prod(shape) for _, dtype, shape, _ in places]
    small = [number for number, size in enumerate(sizes) if _SMALL * size <= nbytes]
    together = sum(sizes[number] for number in small)
    return frozenset(small if _SMALL_TOGETHER * together <= nbytes else ())


class _Wrapper(ForkingPickler):
    def __init__(self, file: io.BytesIO, left_out: frozenset[int | None]) -> None:
        super().__init__(file, 5)
        self._left_out = left_out
        self.leaves: list[Leaf] = []

    def reducer_override(self, value: object) -> Any:
        kind = type(value)
        if kind is torch.Tensor and _is_plain(value):  # type: ignore[arg-type]
            if _storage(value) in self._left_out:  # type: ignore[arg-type]
                return NotImplemented
            # torch's own way forgets that a tensor is conjugated or negated.
            self.leaves.append(value.resolve_conj().resolve_neg())  # type: ignore[attr-defined]
        elif kind is np.ndarray and not value.dtype.hasobject and value.flags.c_contiguous:  # type: ignore[attr-defined]
            self.leaves.append(value)  # type: ignore[arg-type]
        else:
            return NotImplemented
        return _leaf, (len(self.leaves) - 1,)


class _Unwrapper(pickle.Unpickler):
    """Its memo holds what it makes and what `find_class` gave it. A method of its own among them
    would be a cycle, and the memory lent until the collector comes by.
    """

    def __init__(self, skeleton: bytes, take: Callable[[int], Leaf]) -> None:
        super().__init__(io.BytesIO(skeleton))
        self._take = take

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == _leaf.__name__:
            return self._take
        return super().find_class(module, name)


def _take(
    places: Sequence[Place], memory: Bytes | None, small: frozenset[int], number: int
) -> Leaf:
    offset, dtype, shape, strides = places[number]
    if memory is None:
        # Only what has no bytes goes without a slot.
        is_array = isinstance(dtype, np.dtype)
        return np.empty(shape, dtype) if is_array else torch.empty(shape, dtype=dtype)
    if isinstance(dtype, np.dtype):
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, memory, offset)
        return array.copy() if number in small else array
    if strides is None:
        tensor = tensor_at(memory, offset, dtype, shape)
    else:
        tensor = tensor_at(memory, offset, dtype, (math.prod(shape),)).as_strided(shape, strides)
    return tensor.clone() if number in small else tensor


def _leaf(number: int) -> Leaf:
    raise InternalError(f"Leaf {number} of a batch was unpickled without its slot.")


def has_usual_strides(tensor: torch.Tensor) -> bool:
    """A contiguous tensor may have others, where a dimension is 1."""
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != step:
            return False
        step *= max(1, size)
    return True


def _describe(leaf: Leaf) -> tuple[Any, tuple[int, ...], tuple[int, ...] | None]:
    if isinstance(leaf, torch.Tensor):
        strides = None if has_usual_strides(leaf) else leaf.stride()
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
        and not tensor.is_shared()  # type: ignore[no-untyped-call]
        and not tensor.__dict__
        and is_dense(tensor)
    )


def _address(leaf: Leaf) -> int:
    return leaf.data_ptr() if isinstance(leaf, torch.Tensor) else leaf.ctypes.data
