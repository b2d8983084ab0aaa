"""What is optimized: a model, the inputs that it is called with, and what is known of both."""

import contextlib
import copy
import functools
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from slipstream.errors import UsageError
from slipstream.infer.inputs import Inputs
from slipstream.recurrent import gather_weights


@dataclass(frozen=True)
class Subject:
    """`model` is the caller's, in evaluation mode for as long as this lives, and is never changed:
    changes are made to copies. `calibration` is for those that need to see real data: what the
    model was called with while its task was measured on a third of the data.
    """

    model: torch.nn.Module
    inputs: Inputs
    calibration: Sequence[Inputs] = field(default=())

    @cached_property
    def device(self) -> torch.device:
        """Of the model, or of its inputs."""
        tensors = [*self.model.parameters(), *self.model.buffers(), *self.inputs.tensors()]
        return tensors[0].device if tensors else torch.device("cpu")

    @cached_property
    def kinds(self) -> dict[str, int]:
        """How many modules of each class there are."""
        names = [type(part).__name__ for part in self.model.modules()]
        return {name: names.count(name) for name in set(names)}

    def count(self, *names: str) -> int:
        """Modules of these classes."""
        return sum(self.kinds.get(name, 0) for name in names)

    def copied(self) -> torch.nn.Module:
        """A copy to change. Raises `UsageError` for a model that cannot be copied."""
        return copied(self.model)

    def wait(self) -> Any:
        """What returns when the device is done; None where calls are over when they return."""
        if self.device.type == "cpu":
            return None
        return lambda: torch.get_device_module(self.device).synchronize(self.device)


def expect_module(model: Any) -> None:
    """Raises `UsageError` for anything that is no model."""
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"model is a {type(model).__name__}; expected a torch.nn.Module.")
    if any(map(is_lazy, model.parameters())):
        raise UsageError(
            f"{type(model).__name__} has parameters without a shape. Call it once before."
        )


def in_evaluation(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, switched; a `train` of its own need not return it."""
    model.eval()
    return model


def in_training(model: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
    """The model itself, switched."""
    model.train(mode)
    return model


def deep_copy(model: torch.nn.Module) -> torch.nn.Module:
    """Raises `UsageError` for a model that cannot be copied."""
    expect_own_forwards(model)
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise UsageError(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}), and is "
            "never changed itself. Give a model that copy.deepcopy takes."
        ) from None


def expect_own_forwards(model: torch.nn.Module) -> None:
    """Raises `UsageError` where a copy would call the model that it was made of."""
    parts = {id(part) for part in model.modules()}
    for name, part in model.named_modules():
        if _leads_to(_uncopied(vars(part).get("forward")), parts):
            raise UsageError(
                f"{type(model).__name__} cannot be copied: the function that was put in place of "
                f"forward of {name or 'the model'} calls this very object, and a copy would call "
                "it, too. Make it a method of a class, or types.MethodType(function, model)."
            )


def _uncopied(forward: Any) -> Any:
    """The function that `copy.deepcopy` takes as it is; objects of methods are copied."""
    while isinstance(forward, functools.partial):
        forward = forward.func
    return forward.__func__ if isinstance(forward, types.MethodType) else forward


def _leads_to(thing: Any, parts: set[int], depth: int = 4) -> bool:
    """Whether a function holds one of these objects."""
    if isinstance(thing, torch.nn.Module):
        return id(thing) in parts
    if isinstance(thing, types.MethodType):
        return id(thing.__self__) in parts or _leads_to(thing.__func__, parts, depth)
    if not isinstance(thing, types.FunctionType) or not depth:
        return False
    held = [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
    for cell in thing.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            held.append(cell.cell_contents)
    return any(_leads_to(each, parts, depth - 1) for each in held)


def copied(model: torch.nn.Module) -> torch.nn.Module:
    """A deep copy, without gradients."""
    with torch.no_grad():
        made = deep_copy(model)
    for tensor in made.parameters():
        tensor.grad = None
        tensor.requires_grad_(False)
    gather_weights(made)
    return made
