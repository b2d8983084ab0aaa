"""What is called: whether it keeps what it is given."""

import inspect
import math
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from slipstream.doctor.record.places import is_users
from slipstream.run.evaluating.purity import has_hooks

# Functions of these compute, and keep nothing.
_TORCH = (
    "torch.functional", "torch.nn.functional", "torch._C._nn", "torch._C._linalg", "torch._C._fft",
    "torch._C._special", "torch.special", "torch.linalg", "torch.fft",
)  # fmt: skip
_NOT_THESE = {
    "TripletMarginWithDistanceLoss", "compile", "load", "save",
    "triplet_margin_with_distance_loss",
}  # fmt: skip
_LAYERS = ("torch.nn.modules.activation", "torch.nn.modules.loss")
_BUILTINS = {
    "abs", "all", "any", "bool", "callable", "dict", "divmod", "enumerate", "float", "getattr",
    "hasattr", "int", "isinstance", "issubclass", "iter", "len", "list", "max", "min", "next",
    "pow", "range", "reversed", "round", "set", "sorted", "sum", "tuple", "type", "zip",
}  # fmt: skip
_MODULES = ("torch.nn.modules.", "torch.nn.utils.parametriz", "torchvision.", "timm.",
            "transformers.")  # fmt: skip
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)

Kind = tuple[Any, ...]


def kind_of(value: Any) -> Kind:
    """All that matters of what is called, to compare: the same kind keeps the same."""
    if isinstance(value, torch.nn.Module):
        parts = tuple((type(part), "forward" in vars(part)) for part in value.modules())
        return "module", parts, has_hooks(value), getattr(value, "reduction", None)
    if type(value) in _PLAIN_TENSORS:
        return ("tensor",)
    if (function := users_function(value)) is not None:
        return "function", function, type(value)
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return "callable", value
    return "other", type(value)


def is_tensor(value: Any) -> bool:
    """A plain one: its methods are torch's."""
    return type(value) in _PLAIN_TENSORS


def keeps_nothing(value: Any) -> bool:
    """Functions of torch and of Python that only compute."""
    name, module = getattr(value, "__name__", ""), getattr(value, "__module__", None)
    if users_function(value) is not None or not callable(value) or name in _NOT_THESE:
        return False
    if module == "builtins":
        return name in _BUILTINS
    if isinstance(value, BuiltinFunctionType):
        return value is getattr(math, name, None) or _is_of_torch(value)
    return isinstance(value, FunctionType) and module in _TORCH


def _is_of_torch(function: BuiltinFunctionType) -> bool:
    if function.__module__ in _TORCH:
        return True
    return getattr(torch, function.__name__, None) == function


def users_function(value: Any) -> FunctionType | None:
    """A function or method of the script, or what an object of it does when it is called. What
    `torch.no_grad` decorates is one still.
    """
    if not isinstance(value, (FunctionType, MethodType, type, torch.nn.Module)):
        value = inspect.getattr_static(type(value), "__call__", None)
    function = value.__func__ if isinstance(value, MethodType) else value
    if not isinstance(function, FunctionType):
        return None
    if function.__code__.co_filename.endswith("torch/utils/_contextlib.py"):
        function = getattr(function, "__wrapped__", function)
    return function if is_users(function.__code__) else None


def is_known_part(module: torch.nn.Module) -> bool:
    """A module whose code is not the script's, and that keeps nothing."""
    kind = type(module)
    is_known = f"{kind.__module__}.".startswith(_MODULES) and kind.__name__ not in _NOT_THESE
    return is_known and "forward" not in vars(module)


def makes_a_layer(kind: Any) -> bool:
    """A class of torch whose modules have no parts or functions of others."""
    if not isinstance(kind, type) or not issubclass(kind, torch.nn.Module):
        return False
    return kind.__module__.startswith(_LAYERS) and kind.__name__ not in _NOT_THESE


def gives_a_number(value: Any) -> bool:
    """A loss that is one number."""
    if isinstance(value, torch.nn.Module):
        return getattr(value, "reduction", None) in ("mean", "sum")
    return keeps_nothing(value) and getattr(value, "__name__", "") in _LOSSES


_LOSSES = {
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "l1_loss",
    "mse_loss", "nll_loss", "smooth_l1_loss",
}  # fmt: skip
