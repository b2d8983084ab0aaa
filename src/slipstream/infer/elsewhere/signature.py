"""Which calls an exported graph can answer, and how their tensors become arrays and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from slipstream.infer.inputs import Inputs
from slipstream.infer.shell import Shell, emptied

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Taken:
    """One tensor that the graph takes. `is_batch`: its first dimension is the batch's. `below`: its
    values have to be smaller than this, either way.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    is_batch: bool
    below: int | None = None


@dataclass(frozen=True)
class Signature:
    """What the graph was made with. `smallest` and `largest` are the batches that it answers; both
    are the example's own where its shapes are fixed.
    """

    arguments: Shell
    takes: tuple[Taken, ...]
    smallest: int
    largest: int
    device: str = "cpu"

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether only the example's batch size can be answered."""
        return not any(taken.is_batch for taken in self.takes) or self.smallest == self.largest

    def with_batches(self, smallest: int, largest: int) -> "Signature":
        """For these batch sizes."""
        return replace(self, smallest=smallest, largest=largest)

    def with_whole_numbers(self, below: int | None) -> "Signature":
        """For such alone."""
        takes = [
            replace(taken, below=below if _is_wide(taken.dtype) else None) for taken in self.takes
        ]
        return replace(self, takes=tuple(takes))

    def tensors(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[torch.Tensor] | None:
        """The inputs of the graph; None for a call of another form, that it was not made for."""
        tensors, arguments = emptied((args, dict(sorted(kwargs.items()))))
        if not arguments.is_like(self.arguments) or not self._fits(tensors):
            return None
        return tensors

    def example(self) -> "Example | None":
        """What most calls are like, where they have nothing but tensors; None where they have more,
        or the graph does not answer them.
        """
        if self.device != "cpu" or self.arguments.others():
            return None
        numbers = tuple(range(len(self.takes)))
        args, kwargs = self.arguments.filled(numbers)  # type: ignore[arg-type]
        if (*args, *kwargs.values()) != numbers:
            return None  # nested
        batches = [taken.shape[0] for taken in self.takes if taken.is_batch]
        if not all(self.smallest <= batch <= self.largest for batch in batches):
            return None
        try:
            empty = [torch.empty(taken.shape, dtype=taken.dtype).numpy() for taken in self.takes]
        except TypeError:  # NumPy does not know all types
            return None
        forms = tuple(
            (array.shape, array.dtype, taken.below)
            for array, taken in zip(empty, self.takes, strict=True)
        )
        return Example(len(args), tuple(kwargs), forms)

    def _fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        batch: int | None = None
        for tensor, taken in zip(tensors, self.takes, strict=True):
            shape = tuple(tensor.shape)
            if tensor.dtype != taken.dtype or tensor.device.type != self.device:
                return False
            if tensor.layout != torch.strided or len(shape) != len(taken.shape):
                return False
            if taken.is_batch:
                batch = shape[0] if batch is None else batch
                if shape[0] != batch or shape[1:] != taken.shape[1:]:
                    return False
            elif shape != taken.shape:
                return False
            if taken.below is not None and not _is_below(tensor.numpy(force=True), taken.below):
                return False
        return batch is None or self.smallest <= batch <= self.largest


@dataclass(frozen=True)
class Example:
    """A call with nothing but tensors: so many by place, the others by these names; the shapes and
    types of all, and what their values have to be smaller than.
    """

    places: int
    names: tuple[str, ...]
    forms: tuple[tuple[tuple[int, ...], Any, int | None], ...]

    def arrays(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Array] | None:
        """Of a call like this; None for another one. To a small model each question that torch is
        asked is a part of its time: here it is one, and the array answers the rest.
        """
        if len(args) != self.places or len(kwargs) != len(self.names):
            return None
        given = (*args, *[kwargs.get(name) for name in self.names]) if kwargs else args
        arrays = []
        try:
            for tensor, (shape, dtype, below) in zip(given, self.forms, strict=True):
                if type(tensor) is not torch.Tensor:
                    return None
                array = tensor.numpy()
                if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                    return None
                if below is not None and not _is_below(array, below):
                    return None
                arrays.append(array)
        except (TypeError, RuntimeError):  # elsewhere, with gradients, or of another layout
            return None
        return arrays


def _is_wide(dtype: torch.dtype) -> bool:
    is_whole = not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    return is_whole and dtype.itemsize >= 4


def _is_below(array: Array, limit: int) -> bool:
    return not array.size or (-limit < int(array.min()) and int(array.max()) < limit)


def signature_of(inputs: Inputs) -> Signature:
    """Of calls that are like these: the same arguments, shapes and types."""
    tensors, arguments = emptied((inputs.args, dict(sorted(inputs.kwargs.items()))))
    takes = tuple(Taken(tuple(tensor.shape), tensor.dtype, is_batch=False) for tensor in tensors)
    device = tensors[0].device.type if tensors else "cpu"
    return Signature(arguments, takes, 0, 0, device)


def arrays_from(tensors: Sequence[torch.Tensor]) -> list[Array]:
    """Views of the tensors' memory where they are contiguous and on the CPU."""
    return [
        tensor.numpy() if _is_array(tensor) else tensor.contiguous().numpy(force=True)
        for tensor in tensors
    ]


def _is_array(tensor: torch.Tensor) -> bool:
    return (
        tensor.is_cpu
        and not tensor.requires_grad
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def tensors_from(arrays: Sequence[Array]) -> list[torch.Tensor]:
    """Views of the arrays' memory, which they keep."""
    return [
        torch.from_numpy(array if type(array) is np.ndarray else np.asarray(array))
        for array in arrays
    ]
