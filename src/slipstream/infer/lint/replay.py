"""An operator called again, alone: the same one, on other numbers of the same shapes."""

from collections.abc import Callable, Sequence
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

    @property
    def extent(self) -> int:
        """Numbers from its first to its last."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))


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

    def tensors(self) -> list[tuple[int, _Like]]:
        """Where they stand among the leaves."""
        return [(at, leaf) for at, leaf in enumerate(self.leaves) if isinstance(leaf, _Like)]

    @property
    def shape(self) -> str:
        """Of its first tensor, as one types it."""
        shapes = [like.shape for _, like in self.tensors()]
        return "x".join(map(str, shapes[0])) if shapes and shapes[0] else "scalar"


class Memory:
    """What several calls use in turn, so that all of them together need no more than the largest.

    An operator that works in place has ones: what is multiplied again and again would end in
    numbers that are slow to compute with.
    """

    def __init__(self, replays: Sequence[Replay]) -> None:
        extents: dict[tuple[object, ...], int] = {}
        for replay in replays:
            for place, like in replay.tensors():
                key = _key(replay, place, like)
                extents[key] = max(extents.get(key, 0), like.extent)
        self._extents = extents
        self._made: dict[tuple[object, ...], torch.Tensor] = {}

    def call(self, replay: Replay) -> Callable[[], object]:
        """For where gradients are off."""
        leaves = list(replay.leaves)
        for place, like in replay.tensors():
            flat = self._flat(_key(replay, place, like), like)
            leaves[place] = flat.as_strided(like.shape, like.stride)
        args, kwargs = tree_unflatten(leaves, replay.nesting)
        return lambda: replay.func(*args, **kwargs)

    def _flat(self, key: tuple[object, ...], like: _Like) -> torch.Tensor:
        if key not in self._made:
            made = torch.ones(self._extents[key], dtype=like.dtype, device=like.device)
            is_real = like.dtype.is_floating_point or like.dtype.is_complex
            self._made[key] = made.normal_() if is_real and not key[0] else made
        return self._made[key]


def _key(replay: Replay, place: int, like: _Like) -> tuple[object, ...]:
    return replay.func._schema.is_mutable, place, like.dtype, like.device
