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
    """One tensor that the graph takes. `is_batch`: its first dimension is the batch's."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    is_batch: bool


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

    def tensors(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[torch.Tensor] | None:
        """The inputs of the graph; None for a call of another form, that it was not made for."""
        tensors, arguments = emptied((args, dict(sorted(kwargs.items()))))
        if not arguments.is_like(self.arguments) or not self._fits(tensors):
            return None
        return tensors

    @property
    def example_array(self) -> Array | None:
        """Like the one that most calls are made with, where that is a tensor and nothing else;
        None where it is more, or the graph does not answer it.
        """
        is_one = self.arguments.is_like(emptied(((torch.empty(0),), {}))[1])
        if not is_one or self.device != "cpu":
            return None
        taken = self.takes[0]
        if taken.is_batch and not self.smallest <= taken.shape[0] <= self.largest:
            return None
        try:
            return torch.empty(taken.shape, dtype=taken.dtype).numpy()
        except TypeError:  # NumPy does not know all types
            return None

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
        return batch is None or self.smallest <= batch <= self.largest


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
