"""Updates tensors by others, all at once, where that is the same as one after the other."""

from collections.abc import Iterable
from typing import Any

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def update(pairs: list[tuple[Any, Any]], kind: str, by: str, factors: tuple[Any, ...]) -> None:
    """Of pairs that `are_apart` has let through; no memory is needed for it."""
    groups: dict[Any, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for kept, new in pairs:
        group = groups.setdefault((kept.device, kept.dtype), ([], []))
        # Autograd does not count changes of data.
        group[0].append(kept.data if by == "data" else kept.detach())
        group[1].append(new.detach())
    for first, second in groups.values():
        _update(first, second, kind, factors)


def _update(
    kept: list[torch.Tensor], new: list[torch.Tensor], kind: str, factors: tuple[Any, ...]
) -> None:
    if kind == "copy":
        torch._foreach_copy_(kept, new)
    elif kind == "lerp":
        torch._foreach_lerp_(kept, new, factors[0])
    else:
        torch._foreach_mul_(kept, factors[0])
        torch._foreach_add_(kept, new, alpha=factors[1])


def split(
    pairs: Iterable[tuple[Any, Any]], kind: str
) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
    """Those of the simplest sort, and the others, such as a count of batches among averages."""
    simple: list[tuple[Any, Any]] = []
    others: list[tuple[Any, Any]] = []
    for kept, new in pairs:
        is_simple = (
            type(kept) in _PLAIN
            and type(new) in _PLAIN
            and (kept.shape, kept.device, kept.dtype) == (new.shape, new.device, new.dtype)
            and (kind == "copy" or kept.is_floating_point())
        )
        (simple if is_simple else others).append((kept, new))
    return simple, others


def are_apart(pairs: Iterable[tuple[Any, Any]], factors: tuple[Any, ...]) -> bool:
    """Whether no update can see what another wrote."""
    if not all(type(factor) in (int, float) for factor in factors):
        return False
    written: set[int] = set()
    read: set[int] = set()
    for kept, new in pairs:
        for tensor in (kept, new):
            if type(tensor) not in _PLAIN or tensor.layout is not torch.strided:
                return False
        place = kept.untyped_storage().data_ptr()
        if place in written:
            return False
        written.add(place)
        read.add(new.untyped_storage().data_ptr())
    return not written & read
