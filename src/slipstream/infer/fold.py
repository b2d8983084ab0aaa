"""Batch norms made part of the convolution or linear layer before them.

A pair is folded only where the exported graph shows that the batch norm is all that uses the
layer's result, that neither is called anywhere else, and that no hook would see the difference.
A model that cannot be exported is read as it is written: members of an `nn.Sequential` that follow
each other. Weights are computed in double precision.
"""

import itertools
from typing import Any

import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.inputs import Inputs
from slipstream.infer.keeping import TookTooLong
from slipstream.infer.quiet import quietly

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_LAYERS = (*_CONVOLUTIONS, *_TRANSPOSED, nn.Linear)
_NORM_CALLS = ("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm")


def folds_of(model: nn.Module, inputs: Inputs) -> list[tuple[str, str]]:
    """Names of layers with the batch norms that can be folded into them. The model is in
    evaluation mode.
    """
    if not any(type(part) in _NORMS for part in model.modules()):
        return []
    try:
        with quietly():
            found = _in_graph(model, inputs)
    except TookTooLong:
        raise
    except Exception:  # whatever export cannot do
        found = _in_sequences(model)
    return [
        pair
        for pair in found
        if _can_fold(*map(model.get_submodule, pair)) and not _is_seen_between(model, *pair)
    ]


def fold(model: nn.Module, pairs: list[tuple[str, str]]) -> None:
    """In place: weights change, and batch norms become `nn.Identity`."""
    for layer_name, norm_name in pairs:
        _fold_weights(model.get_submodule(layer_name), model.get_submodule(norm_name))
        place, _, name = norm_name.rpartition(".")
        is_linear = type(model.get_submodule(layer_name)) is nn.Linear
        setattr(model.get_submodule(place), name, _OfRows() if is_linear else nn.Identity())


class _OfRows(nn.Identity):
    """In place of a norm behind a linear layer, which norms the dimension that the layer makes only
    where there are two of them.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As it is."""
        if input.dim() != 2:
            raise UsageError(
                "A batch norm was folded into a linear layer for inputs of two dimensions; got "
                f"{input.dim()}. Give such inputs in also=, or leave out the change 'fold'."
            )
        return input


def _in_graph(model: nn.Module, inputs: Inputs) -> list[tuple[str, str]]:
    with torch.no_grad():
        exported = torch.export.export(model, inputs.args, dict(inputs.kwargs), strict=False)
    names = {**exported.graph_signature.inputs_to_parameters}
    pairs = []
    for node in exported.graph.nodes:
        if node.op != "call_function" or _called(node) not in _NORM_CALLS:
            continue
        layer = node.args[0]
        if getattr(layer, "op", "") != "call_function" or len(layer.users) > 1:
            continue
        weights = [names.get(each.name) for each in (_argument(layer, 1), _argument(node, 1))]
        uses = [len(each.users) for each in (_argument(layer, 1), _argument(node, 1))]
        if None in weights or uses != [1, 1]:
            continue
        if _called(layer) == "linear" and layer.meta["val"].dim() != 2:
            continue  # channels are not what the layer made last
        pair = tuple(str(name).rpartition(".")[0] for name in weights)
        pairs.append((pair[0], pair[1]))
    return pairs


def _called(node: Any) -> str:
    return str(getattr(node.target, "_opname", getattr(node.target, "__name__", "")))


def _argument(node: Any, place: int) -> Any:
    found = node.args[place] if len(node.args) > place else None
    return found if hasattr(found, "users") else _Nothing()


class _Nothing:
    name = ""
    users: tuple[()] = ()


def _in_sequences(model: nn.Module) -> list[tuple[str, str]]:
    pairs = []
    for name, part in model.named_modules():
        if type(part) is nn.Sequential:
            members = list(part.named_children())
            for (one, first), (other, _) in itertools.pairwise(members):
                if type(first) is nn.Linear:
                    continue  # its result may have more than two dimensions
                pairs.append((f"{name}.{one}".lstrip("."), f"{name}.{other}".lstrip(".")))
    objects = [id(part) for _, part in model.named_modules(remove_duplicate=False)]
    return [
        pair for pair in pairs if all(objects.count(id(model.get_submodule(n))) == 1 for n in pair)
    ]


def _can_fold(layer: nn.Module, norm: nn.Module) -> bool:
    return (
        type(layer) in _LAYERS
        and type(norm) in _NORMS
        and isinstance(norm, _NORMS)
        and norm.running_mean is not None
        and not norm.training
        and type(layer.weight) is nn.Parameter
        and layer.weight.dtype == norm.running_mean.dtype
        and not any(_is_touched(part) for part in (layer, norm))
    )


def _is_touched(part: nn.Module) -> bool:
    """By hooks, by a forward of its own, or by a weight that is computed."""
    return bool(
        _has_hooks(part) or "forward" in vars(part) or nn.utils.parametrize.is_parametrized(part)
    )


def _is_seen_between(model: nn.Module, layer: str, norm: str) -> bool:
    """By a hook of something that holds only one of the two."""
    around = set(_holders(layer)) ^ set(_holders(norm))
    return any(_has_hooks(model.get_submodule(name)) for name in around)


def _holders(name: str) -> list[str]:
    """Of what lies in what.

    >>> _holders("a.b.c")
    ['a.b', 'a']
    """
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def _has_hooks(part: nn.Module) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks)


def _fold_weights(layer: Any, norm: Any) -> None:
    with torch.no_grad():
        mean, variance = norm.running_mean.double(), norm.running_var.double()
        gamma = norm.weight.double() if norm.weight is not None else torch.ones_like(mean)
        beta = norm.bias.double() if norm.bias is not None else torch.zeros_like(mean)
        scale = gamma / torch.sqrt(variance + norm.eps)
        bias = layer.bias.double() if layer.bias is not None else torch.zeros_like(mean)
        weight = layer.weight.double()
        if isinstance(layer, _TRANSPOSED):
            groups = layer.groups
            split = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
            ones = [1] * (weight.dim() - 2)
            weight = (split * scale.reshape(groups, 1, -1, *ones)).reshape(weight.shape)
        else:
            weight = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
        kept = layer.weight
        folded = torch.empty_like(kept).copy_(weight)  # keeps the memory format
        layer.weight = nn.Parameter(folded, requires_grad=False)
        made = ((bias - mean) * scale + beta).to(kept.dtype)
        layer.bias = nn.Parameter(made, requires_grad=False)
