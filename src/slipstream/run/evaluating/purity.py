"""Whether a call of a model changes nothing, so that it can be made once more to compare."""

from types import FunctionType
from typing import Any

import torch
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from torch.utils._pytree import tree_leaves

from slipstream.rng import Rng
from slipstream.run.loading.looks import names
from slipstream.run.loading.watch import Watch

_GRADIENTS = "is_grad_enabled"
_KEPT_APART = ("_parameters", "_buffers", "_modules")
_OF_ALL_MODULES = frozenset(vars(torch.nn.Module()))
_PLAIN = (torch.Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype,
          torch.device)  # fmt: skip


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether somebody looks on."""
    if _global_forward_hooks or _global_forward_pre_hooks:
        return True
    return any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def has_uncounted(module: torch.nn.Module) -> bool:
    """Whether it has tensors of inference mode, whose changes torch does not count."""
    return any(tensor.is_inference() for tensor in (*module.parameters(), *module.buffers()))


def asks_for_gradients(module: torch.nn.Module) -> bool:
    """Whether it goes another way without gradients, as attention does, which leaves padding out
    there. Results are equal by chance then, or for batches without padding.
    """
    return any(
        _GRADIENTS in names(function.__code__)
        for kind in {each for part in module.modules() for each in type(part).__mro__}
        if kind is not torch.nn.Module
        for function in vars(kind).values()
        if isinstance(function, FunctionType)
    )


def state_of(module: torch.nn.Module, given: Any) -> list[Any]:
    """What a call could change: parameters, buffers, attributes, inputs, random streams. Two of
    them are equal if it did not.
    """
    state: list[Any] = []
    for part in module.modules():
        for name, value in vars(part).items():
            if name not in _KEPT_APART:
                state.append((name, id(value), _size(value)))
        tensors = (*part._parameters.values(), *part._buffers.values())
        state += [(id(tensor), tensor._version) for tensor in tensors if tensor is not None]
    inputs = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    state += [tensor._version for tensor in inputs if not tensor.is_inference()]
    return [*state, Rng()]


def are_plain(given: Any) -> bool:
    """Whether all that a call is given are tensors and numbers: other things it may change."""
    return all(isinstance(leaf, _PLAIN) for leaf in tree_leaves(given))


def watched(module: torch.nn.Module) -> Watch:
    """What the parts of a model hold beyond what all modules do, and what their code looks up."""
    held = [
        value
        for part in module.modules()
        for name, value in vars(part).items()
        if name not in _OF_ALL_MODULES
    ]
    kinds = {type(part) for part in module.modules()}
    return Watch([*held, *(kind.forward for kind in kinds)])


def signature(module: torch.nn.Module, given: Any) -> Any:
    """Of what may choose another way to compute: shapes, types and where things lie."""
    described = tuple(
        (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
        else (type(leaf), leaf if isinstance(leaf, (bool, int, float, str)) else None)
        for leaf in tree_leaves(given)
    )
    parameter = next(module.parameters(), None)
    kind = None if parameter is None else (parameter.dtype, parameter.device)
    return (described, kind, torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu"))


def are_equal(one: Any, other: Any) -> bool:
    """Bit for bit, in the same kinds of containers."""
    ones, others = tree_leaves(one), tree_leaves(other)
    return (
        type(one) is type(other)
        and len(ones) == len(others)
        and all(_is_equal(a, b) for a, b in zip(ones, others, strict=True))
    )


def _is_equal(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other) and bool(one == other)
    if one.layout is not torch.strided or other.layout is not torch.strided:
        return False
    if one.dtype != other.dtype or one.shape != other.shape or one.stride() != other.stride():
        return False
    # As bytes: values that are no numbers equal nothing, and 0.0 equals -0.0.
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _size(value: Any) -> int | None:
    return len(value) if isinstance(value, (list, dict, set)) else None
