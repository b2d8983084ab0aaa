"""Which layers make a model's results: their widths are the caller's, and stay."""

from typing import Any

import torch
from torch import nn

from slipstream.infer.inputs import Inputs

_PRODUCTS = (
    "linear", "addmm", "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "lstm", "gru",
)  # fmt: skip
_LAYERS = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
    nn.ConvTranspose3d, nn.LSTM, nn.GRU,
)  # fmt: skip


def output_layers(model: nn.Module, inputs: Inputs) -> list[str]:
    """Names of layers with no other layer between them and a result. Of a model that cannot be
    exported, the last one that is called.
    """
    try:
        return _in_graph(model, inputs)
    except Exception:  # whatever export cannot do
        return _called(model, inputs)[-1:]


def _in_graph(model: nn.Module, inputs: Inputs) -> list[str]:
    exported = torch.export.export(model, inputs.args, dict(inputs.kwargs), strict=False)
    weights = exported.graph_signature.inputs_to_parameters
    found: dict[str, None] = {}
    seen: set[Any] = set()
    ahead = list(exported.graph.output_node().all_input_nodes)
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        named = [weights[each.name] for each in node.all_input_nodes if each.name in weights]
        if _name_of(node) in _PRODUCTS and named:
            found.setdefault(named[0].rpartition(".")[0])
        else:
            ahead += node.all_input_nodes
    return [name for name in found if name]  # a weight of the model itself is no layer


def _name_of(node: Any) -> str:
    return str(getattr(node.target, "_opname", getattr(node.target, "__name__", "")))


def _called(model: nn.Module, inputs: Inputs) -> list[str]:
    names: list[str] = []
    handles = [
        part.register_forward_pre_hook(lambda _, __, name=name: names.append(name))
        for name, part in model.named_modules()
        if isinstance(part, _LAYERS)
    ]
    try:
        with torch.no_grad():
            inputs.copy()(model)
    finally:
        for handle in handles:
            handle.remove()
    return names
