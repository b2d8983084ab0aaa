"""Tensors inside of what a model takes and gives: tuples, lists, dicts, dataclasses of outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors, in order.

    >>> [t.item() for t in tensors_of({"a": torch.tensor(1), "b": [torch.tensor(2), 3]})]
    [1, 2]
    """
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure with other tensors."""
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def structure_of(value: Any) -> tuple[str, list[Any]]:
    """What has to be the same in two results: nesting, and shape, type and place of each tensor."""
    leaves, nesting = tree_flatten(value)
    kinds = [
        (tuple(leaf.shape), leaf.dtype, leaf.device.type)
        if isinstance(leaf, torch.Tensor)
        else type(leaf).__name__
        for leaf in leaves
    ]
    return str(nesting), kinds


def as_double(value: Any) -> Any:
    """Floating-point tensors in double precision."""
    return changed(value, lambda t: t.double() if t.is_floating_point() else t)
