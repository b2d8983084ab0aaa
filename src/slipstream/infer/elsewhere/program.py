"""A model as a program of torch.export, for any batch size where that is possible, and as ONNX."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from slipstream.infer.elsewhere.runtimes import input_name
from slipstream.infer.keeping import TookTooLong
from slipstream.infer.shell import Shell, emptied

_MOST_IN_ONE_FILE_BYTES = 1_500_000_000  # a protocol buffer holds two gigabytes
_ANY = 2**31
_SIZE = r"L(\[[^\]]+\])+\.size\(\)\[0\]"
_BOUND = rf"(\d+ <=? )?{_SIZE}( [<>]=? \d+| == {_SIZE})?"


class Flat(nn.Module):
    """A model that takes and gives tensors only, in order."""

    def __init__(self, model: nn.Module, arguments: Shell) -> None:
        super().__init__()
        self.model = model
        self.arguments = arguments

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors of what the model gives."""
        args, kwargs = self.arguments.filled(tensors)
        return tuple(emptied(self.model(*args, **kwargs))[0])


@dataclass(frozen=True)
class Program:
    """`is_batch`: which inputs have the batch first, of any size up to `largest`."""

    exported: torch.export.ExportedProgram
    is_batch: tuple[bool, ...]
    largest: int

    def save(self, file: Path) -> None:
        """As ONNX; weights that are too large for one file lie beside it."""
        made = torch.onnx.export(
            self.exported, dynamo=True, verbose=False,
            input_names=[input_name(number) for number in range(len(self.is_batch))],
        )  # fmt: skip
        assert made is not None
        kept = itertools.chain(self.exported.state_dict.values(), self.exported.constants.values())
        size_bytes = sum(each.nbytes for each in kept if isinstance(each, torch.Tensor))
        made.save(str(file), external_data=size_bytes > _MOST_IN_ONE_FILE_BYTES)


def program_of(flat: nn.Module, tensors: Sequence[torch.Tensor]) -> Program:
    """Raises what torch.export raises."""
    batch = batch_of(tensors)
    is_batch = [batch > 0 and tensor.dim() > 0 and len(tensor) == batch for tensor in tensors]
    try:
        found = _of_any_size(flat, tensors, is_batch)
    except TookTooLong:
        raise
    except Exception:  # whatever a size that is not known leads to
        found = None
    if found is not None and (batch > 1 or list(found.is_batch) == is_batch):
        return found
    return Program(_traced(flat, tensors, None), (False,) * len(tensors), batch)


def _of_any_size(
    flat: nn.Module, tensors: Sequence[torch.Tensor], is_batch: Sequence[bool]
) -> Program | None:
    if not any(is_batch):
        return None
    # A size of 1 would be taken for one that can be broadcast.
    traced = of_size(tensors, is_batch, max(batch_of(tensors), 2))
    shapes = tuple({0: torch.export.Dim.AUTO} if varies else None for varies in is_batch)
    exported = _traced(flat, traced, (shapes,))
    if _depends_on_the_batch(exported):
        return None
    values = _inputs_of(exported)
    sizes = [value.shape[0] for value in values if _varies(value)]
    bounds = [exported.range_constraints.get(size.node.expr) for size in sizes]
    most = [each.upper for each in bounds if each is not None]
    largest = min((int(each) for each in most if each.is_Integer), default=_ANY)
    return Program(exported, tuple(map(_varies, values)), largest)


def _depends_on_the_batch(exported: torch.export.ExportedProgram) -> bool:
    """Whether batches of other sizes would take another way through the model. Bounds, and inputs
    of the same size, are known as such.
    """
    guards: list[str] = getattr(exported, "_guards_code", None) or []
    return any(".size()[0]" in guard and not re.fullmatch(_BOUND, guard) for guard in guards)


def _traced(
    flat: nn.Module, tensors: Sequence[torch.Tensor], shapes: Any
) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(flat, tuple(tensors), dynamic_shapes=shapes, strict=False)


def _inputs_of(exported: torch.export.ExportedProgram) -> list[Any]:
    nodes = {node.name: node for node in exported.graph.nodes if node.op == "placeholder"}
    return [nodes[str(name)].meta["val"] for name in exported.graph_signature.user_inputs]


def _varies(value: Any) -> bool:
    return value.dim() > 0 and isinstance(value.shape[0], torch.SymInt)


def batch_of(tensors: Sequence[torch.Tensor]) -> int:
    """The first dimension of the first tensor that has one; 0 if none has."""
    return next((len(tensor) for tensor in tensors if tensor.dim()), 0)


def of_size(
    tensors: Sequence[torch.Tensor], is_batch: Sequence[bool], size: int
) -> list[torch.Tensor]:
    """With the same samples again, or fewer of them.

    >>> of_size([torch.tensor([1, 2])], [True], 3)
    [tensor([1, 2, 1])]
    """
    return [
        tensor[torch.arange(size, device=tensor.device) % len(tensor)] if varies else tensor
        for tensor, varies in zip(tensors, is_batch, strict=True)
    ]
