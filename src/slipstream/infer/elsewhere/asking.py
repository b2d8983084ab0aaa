"""What a model takes and gives, and whether that is all it does."""

from collections.abc import Sequence

import torch
from torch import nn

from slipstream.infer.shell import PLAIN, Shell, emptied


class CannotExport(Exception):
    """The model has no equivalent as a graph; the message says why in one line."""


def asked(
    model: nn.Module, arguments: Shell, tensors: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], Shell]:
    """What the model gives. Raises `CannotExport` for one that does more than that."""
    if has_hooks(model):
        raise CannotExport("calls hooks, which a graph elsewhere would not")
    own = [tensor.clone() for tensor in tensors]
    before = [buffer.clone() for buffer in model.buffers()]
    args, kwargs = arguments.filled(own)
    with torch.no_grad():
        gives, result = emptied(model(*args, **kwargs))
    gives = [tensor.detach().clone() for tensor in gives]
    if not all(map(are_same, own, tensors)):
        raise CannotExport("changes its inputs, which a graph elsewhere would not")
    if not all(map(are_same, model.buffers(), before)):
        raise CannotExport("changes its buffers, which a graph elsewhere would not")
    return gives, result


def are_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit, but for the kind of NaN."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def has_hooks(model: nn.Module) -> bool:
    """Others than torch's own, such as those that compute a normalized weight."""
    return any(map(_has_hooks, model.modules()))


def _has_hooks(part: nn.Module) -> bool:
    hooks = (*part._forward_hooks.values(), *part._forward_pre_hooks.values())
    places = (getattr(hook, "__module__", None) or type(hook).__module__ for hook in hooks)
    return not all(place.startswith("torch.nn.utils.") for place in places)


def check(
    arguments: Shell, tensors: Sequence[torch.Tensor], result: Shell, gives: Sequence[torch.Tensor]
) -> None:
    """Raises `CannotExport` for what a graph of tensors cannot take or give."""
    for leaf in arguments.others():
        if not isinstance(leaf, PLAIN):
            raise CannotExport(f"takes {type(leaf).__name__} values, which no graph does")
    for leaf in result.others():
        if not isinstance(leaf, type(None) | str):
            # It may be another one from call to call.
            raise CannotExport(f"gives {type(leaf).__name__} values, which no graph does")
    if not tensors or not gives:
        raise CannotExport(f"{'gives' if tensors else 'takes'} no tensor")
