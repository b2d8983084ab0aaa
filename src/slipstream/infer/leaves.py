"""Tensors inside of what a model takes and gives: tuples, lists, dicts, dataclasses."""

from collections.abc import Callable
from typing import Any

import torch

from slipstream.infer.shell import emptied

Change = Callable[[torch.Tensor], torch.Tensor]


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors, in order.

    >>> [t.item() for t in tensors_of({"a": torch.tensor(1), "b": [torch.tensor(2), 3]})]
    [1, 2]
    """
    if isinstance(value, torch.Tensor):
        return [value]
    return emptied(value)[0]


def changed(value: Any, change: Change) -> Any:
    """The same with other tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    tensors, shell = emptied(value)
    return shell.filled([change(tensor) for tensor in tensors]) if tensors else value


def changed_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], change: Change
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of a call; those that are tensors cost no more than the change."""
    return (
        tuple(changed(value, change) for value in args),
        {name: changed(value, change) for name, value in kwargs.items()},
    )


def as_double(value: Any) -> Any:
    """Floating-point tensors in double precision."""
    return changed(value, lambda t: t.double() if t.is_floating_point() else t)


def structure_of(value: Any) -> tuple[str, list[Any]]:
    """What two results of the same form have in common: nesting, and shape, type and place of each
    tensor.
    """
    tensors, shell = emptied(value)
    kinds = [(tuple(each.shape), each.dtype, each.device.type) for each in tensors]
    return str(shell.nesting), [*kinds, *(type(other).__name__ for other in shell.others())]
