"""Which calls an exported graph can answer, and how their tensors become arrays and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
        if self._takes_one and len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
            return [args[0]] if self._is_example(args[0]) or self._fits(args) else None
        tensors, arguments = emptied((args, dict(sorted(kwargs.items()))))
        if not arguments.is_like(self.arguments) or not self._fits(tensors):
            return None
        return tensors

    @cached_property
    def _takes_one(self) -> bool:
        """Whether it is called with one tensor and nothing else, which needs no closer look."""
        return self.arguments.is_like(emptied(((torch.empty(0),), {}))[1])

    def _is_example(self, tensor: torch.Tensor) -> bool:
        """Whether it is like the one that most calls are like, in as few steps as can be."""
        taken = self.takes[0]
        return (
            tensor.shape == taken.shape
            and tensor.dtype is taken.dtype
            and tensor.is_cpu
            and self.device == "cpu"
            and tensor.layout is torch.strided
            and (not taken.is_batch or self.smallest <= taken.shape[0] <= self.largest)
        )

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
    return [torch.from_numpy(np.asarray(array)) for array in arrays]
