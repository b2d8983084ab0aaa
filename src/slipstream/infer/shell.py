"""Values without their tensors: what is left is filled with others later."""

import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

# Values that can be compared, and that a graph has as constants.
PLAIN = (type(None), bool, int, float, str)
# A dataclass that is one as well has items beside its fields.
_CONTAINERS = (dict, list, tuple, set)


class _Hole:
    """Where a tensor was."""


_HOLE = _Hole()


@dataclasses.dataclass(frozen=True)
class _Opened:
    """A dataclass that torch does not know as a container, and the shell of its fields."""

    emptied: Any
    fields: "Shell"


@dataclasses.dataclass(frozen=True)
class Shell:
    """Nesting, and every leaf that is no tensor."""

    nesting: TreeSpec
    leaves: tuple[Any, ...]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shell":
        return self  # never changed

    def is_like(self, other: "Shell") -> bool:
        """Whether a graph that was made with one may be given the other: the same nesting, the
        same plain values. Other values than plain ones are never the same.
        """
        return (
            len(self.leaves) == len(other.leaves)
            and self.nesting == other.nesting
            and all(map(_are_alike, self.leaves, other.leaves))
        )

    def filled(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The value with these tensors, in the order in which they were taken."""
        make = self._plainly
        return self._filled(iter(tensors)) if make is None else make(tensors)

    @functools.cached_property
    def _plainly(self) -> Callable[[Sequence[Any]], Any] | None:
        """How to make a tensor, or a plain container of tensors, without torch's own way, which
        knows all containers and takes a part of a small model's time.
        """
        if any(leaf is not _HOLE for leaf in self.leaves):
            return None
        numbers = list(range(len(self.leaves)))
        made = self._filled(iter(numbers))  # type: ignore[arg-type]
        if made == 0 and type(made) is int:
            return operator.itemgetter(0)
        if type(made) in (tuple, list) and list(made) == numbers:
            return type(made)
        if type(made) is dict and list(made.values()) == numbers:
            names = tuple(made)
            return lambda tensors: dict(zip(names, tensors, strict=True))
        return None

    def _filled(self, tensors: Iterator[torch.Tensor]) -> Any:
        leaves = [_fill(leaf, tensors) for leaf in self.leaves]
        return tree_unflatten(leaves, self.nesting)

    def others(self) -> list[Any]:
        """Leaves that are neither tensors nor containers."""
        found: list[Any] = []
        for leaf in self.leaves:
            if isinstance(leaf, _Opened):
                found += leaf.fields.others()
            elif leaf is not _HOLE:
                found.append(leaf)
        return found


def emptied(value: Any) -> tuple[list[torch.Tensor], Shell]:
    """The tensors of a value, and the rest of it. Looks into tuples, lists, dicts, whatever else
    torch knows as a container, and dataclasses.

    >>> tensors, shell = emptied({"a": torch.tensor(1), "b": (None, torch.tensor(2))})
    >>> [int(tensor) for tensor in tensors]
    [1, 2]
    >>> shell.filled([torch.tensor(3), torch.tensor(4)])
    {'a': tensor(3), 'b': (None, tensor(4))}
    """
    leaves, nesting = tree_flatten(value)
    tensors: list[torch.Tensor] = []
    kept: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            tensors.append(leaf)
            kept.append(_HOLE)
        elif _can_be_opened(leaf):
            inside, fields = emptied(_fields_of(leaf))
            tensors += inside
            kept.append(_Opened(_without_fields(leaf), fields))
        else:
            kept.append(leaf)
    return tensors, Shell(nesting, tuple(kept))


def _can_be_opened(leaf: Any) -> bool:
    """Only what its fields are: whatever else an object holds would stay as it is."""
    if not dataclasses.is_dataclass(leaf) or isinstance(leaf, (type, *_CONTAINERS)):
        return False
    return vars(leaf).keys() <= _fields_of(leaf).keys() if hasattr(leaf, "__dict__") else True


def _fields_of(leaf: Any) -> dict[str, Any]:
    return {field.name: getattr(leaf, field.name) for field in dataclasses.fields(leaf)}


def _without_fields(leaf: Any) -> Any:
    made = copy.copy(leaf)
    for field in dataclasses.fields(leaf):
        object.__setattr__(made, field.name, None)  # it may be frozen
    return made


def _fill(leaf: Any, tensors: Iterator[torch.Tensor]) -> Any:
    if leaf is _HOLE:
        return next(tensors)
    if not isinstance(leaf, _Opened):
        return leaf
    made = copy.copy(leaf.emptied)
    for name, value in leaf.fields._filled(tensors).items():
        object.__setattr__(made, name, value)
    return made


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, _Opened):
        return (
            isinstance(other, _Opened)
            and type(one.emptied) is type(other.emptied)
            and one.fields.is_like(other.fields)
        )
    if one is _HOLE or other is _HOLE:
        return one is other
    return type(one) is type(other) and isinstance(one, PLAIN) and bool(one == other)
