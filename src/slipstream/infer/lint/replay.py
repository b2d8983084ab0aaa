"""An operator called again, alone: the same one, on other numbers of the same shapes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten


@dataclass(frozen=True)
class _Like:
    """A tensor's form."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def make(self, ones: bool) -> torch.Tensor:
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        if ones or not (self.dtype.is_floating_point or self.dtype.is_complex):
            return made.fill_(1)
        return made.normal_()


@dataclass(frozen=True)
class Replay:
    """Equal calls compare equal, so that they are measured once."""

    func: Any
    leaves: tuple[Any, ...]
    nesting: TreeSpec

    @classmethod
    def of(cls, func: Any, args: Any, kwargs: Any) -> "Replay":
        """Keeps forms, not tensors."""
        leaves, nesting = tree_flatten((tuple(args), dict(kwargs)))
        forms = [
            _Like(tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device)
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in leaves
        ]
        return cls(func, tuple(forms), nesting)

    def __hash__(self) -> int:
        return hash((self.func, tuple(map(repr, self.leaves))))

    def call(self) -> Callable[[], object]:
        """On tensors of its own, for where gradients are off. An operator that works in place
        gets ones: what is multiplied again and again would end in numbers that are slow.
        """
        ones = self.func._schema.is_mutable
        leaves = [leaf.make(ones) if isinstance(leaf, _Like) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.nesting)
        return lambda: self.func(*args, **kwargs)

    @property
    def shape(self) -> str:
        """Of its first tensor, as one types it."""
        like = next((leaf for leaf in self.leaves if isinstance(leaf, _Like)), None)
        return "x".join(map(str, like.shape)) if like is not None and like.shape else "scalar"
