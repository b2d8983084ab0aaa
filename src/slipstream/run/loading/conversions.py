"""Numbers of a whole batch converted as a dataset converts those of each sample."""

import builtins
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from slipstream.run.loading.getters import Parts, Row, Turn

ARRAY, TENSOR, NUMBER = "array", "tensor", "number"  # what a sample has there
_TARGETS = {
    "float": torch.float32, "double": torch.float64, "long": torch.int64, "int": torch.int32,
    "bool": torch.bool, "FloatTensor": torch.float32, "LongTensor": torch.int64,
}  # fmt: skip
_SAFE = (
    torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool,
)  # fmt: skip
_COLLATED = {"int": torch.int64, "float": torch.float64}  # numbers of Python


class Refused(Exception):
    """It is not certain that a whole batch gives the same."""


def are_known(form: Row | Parts, names: Mapping[str, Any]) -> bool:
    """Whether the modules and functions that a dataset's code names are what they are called."""
    if isinstance(form, Parts):
        return all(are_known(item, names) for item in form.items)
    return all(_is_known(turn, names) for turn in form.turns)


def _is_known(turn: Turn, names: Mapping[str, Any]) -> bool:
    function = turn.name[0]
    if (
        len(turn.name) == 1
        and function in names
        and names[function] is not vars(builtins)[function]
    ):
        return False
    if len(turn.name) == 2 and function and names.get(function) is not torch:
        return False
    module = turn.dtype[0] if turn.dtype else ""
    return not module or names.get(module) is (np if turn.name[-1] == "astype" else torch)


def converted(
    batch: torch.Tensor, turns: tuple[Turn, ...], kind: str, dims: int
) -> tuple[torch.Tensor, str]:
    """A batch of rows of something with so many dimensions, and what a sample has there then.
    Raises `Refused`.
    """
    for turn in turns:
        name = turn.name[-1]
        if len(turn.name) == 1:
            batch, kind = _number(batch, name, dims), NUMBER
        elif turn.name[0]:
            _check_made(name, kind, dims)
            batch, kind = _cast(batch, _TARGETS.get(name) or _named(turn)), TENSOR
        elif name == "item":
            batch, kind = (
                _number(batch, "float" if batch.is_floating_point() else "int", dims),
                NUMBER,
            )
        elif (name == "astype") is not (kind == ARRAY) or kind == NUMBER:
            raise Refused
        else:
            batch = _cast(batch, _TARGETS.get(name) or _named(turn))
    return batch, kind


def _check_made(name: str, kind: str, dims: int) -> None:
    """Of a tensor, `torch.tensor` warns; of a number, `FloatTensor` makes as many."""
    is_fit = {
        "as_tensor": kind in (ARRAY, TENSOR),
        "tensor": kind in (ARRAY, NUMBER),
    }.get(name, kind == ARRAY and dims > 1)
    if not is_fit:
        raise Refused


def _number(batch: torch.Tensor, name: str, dims: int) -> torch.Tensor:
    if dims > 1 or batch.dtype == torch.bool:
        raise Refused
    return _cast(batch, _COLLATED[name])


def _named(turn: Turn) -> torch.dtype | None:
    """As it is written; None where nothing is."""
    if not turn.dtype:
        if turn.name[-1] in ("to", "type", "astype"):
            raise Refused
        return None
    module, name = turn.dtype
    if turn.name[-1] == "astype":
        name = np.dtype(getattr(np, name) if module else name).name
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Refused
    return found


def _cast(batch: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """What does not fit may become something else in a loop than by itself."""
    if dtype is None or batch.dtype == dtype:
        return batch
    if dtype not in _SAFE or (batch.is_floating_point() and not dtype.is_floating_point):
        raise Refused
    return batch.to(dtype)
