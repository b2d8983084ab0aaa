"""Whole channels taken out of a model, by Torch-Pruning, which finds out what belongs together."""

import copy
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.compress.heads import output_layers
from slipstream.infer.inputs import Inputs
from slipstream.infer.leaves import tensors_of
from slipstream.infer.subject import in_evaluation, in_training


def check_torch_pruning() -> None:
    """Raises `UsageError` where it is not installed."""
    if find_spec("torch_pruning") is None:
        raise UsageError(
            "compress needs Torch-Pruning, which is not installed: pip install torch-pruning."
        )


def pruned(
    model: nn.Module, inputs: Inputs, ratio: float, multiple: int, ignored: Sequence[str]
) -> nn.Module:
    """A copy, in training, with `ratio` of the channels of each layer gone: those with the smallest
    weights, in all layers that share them. Widths become multiples of `multiple`, rounded down.

    What makes the results stays as wide as it is, and so do layers that are `ignored`, with all
    that is in them, and those of which less than `multiple` would be left.
    """
    torch_pruning: Any = import_module("torch_pruning")
    made = copy.deepcopy(model)
    kept = [*output_layers(in_evaluation(made), inputs), *ignored]
    learns = {name: each.requires_grad for name, each in made.named_parameters()}
    for parameter in made.parameters():
        parameter.grad = None
        parameter.requires_grad_(parameter.is_floating_point())  # dependencies are read backwards
    with torch.enable_grad():
        pruner = torch_pruning.pruner.BasePruner(
            made, inputs.copy(),
            importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
            pruning_ratio=ratio, round_to=multiple,
            ignored_layers=[made.get_submodule(name) for name in kept],
            # Its own defaults would keep what they once held.
            in_channel_groups={}, out_channel_groups={}, num_heads=_heads(made),
            forward_fn=lambda model, given: given(model), output_transform=tensors_of,
        )  # fmt: skip
    tied = _tied(made)
    pruner.step()
    _tie(made, tied)
    for name, parameter in made.named_parameters():
        parameter.requires_grad_(learns.get(name, True))
        parameter.grad = None
    return in_training(made)


def _tied(model: nn.Module) -> list[list[str]]:
    """Names of parameters that are one."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [each for each in names.values() if len(each) > 1]


def _tie(model: nn.Module, tied: list[list[str]]) -> None:
    """Torch-Pruning gives each layer a parameter of its own."""
    for first, *others in tied:
        one = model.get_parameter(first)
        for name in others:
            other = model.get_parameter(name)
            if one.shape != other.shape or not torch.equal(one, other):
                raise ValueError(f"{first} and {name} are one weight and would be pruned apart")
            place, _, last = name.rpartition(".")
            setattr(model.get_submodule(place), last, one)


def _heads(model: nn.Module) -> dict[nn.Module, int]:
    return {
        part: part.num_heads for part in model.modules() if isinstance(part, nn.MultiheadAttention)
    }
