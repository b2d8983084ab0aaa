"""Layers again, with what they were given: as it lay in memory, and in the order they like."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from slipstream.doctor.record.inside import Layer, is_convolution, layout_of
from slipstream.doctor.record.stopwatch import Stopwatch

if TYPE_CHECKING:
    from slipstream.doctor.record.loop import LoopHooks

_MOST_LAYERS = 4


def replay_layers(hooks: "LoopHooks", watch: Stopwatch) -> list[dict[str, Any]]:
    """Convolutions whose input lies in another order than their weights, and unused layers."""
    found: list[dict[str, Any]] = []
    for number, inside in hooks.models.insides.items():
        layers = list(inside.called.values())
        odd = [layer for layer in layers if is_convolution(layer) and _lies_odd(layer)]
        for layer in odd[:_MOST_LAYERS]:
            found += _compare_layouts(layer, number, watch)
        if hooks.models.found[number].get("with_gradient"):
            unused = [layer for layer in layers if not layer.got_gradient]
            for layer in _outermost(unused)[:_MOST_LAYERS]:
                found += _time_unused(layer, number, watch)
    return found


def _lies_odd(layer: Layer) -> bool:
    given, weight = layer.inputs[0], layer.module.weight
    if layout_of(given) == "other":
        return True
    orders = {torch.contiguous_format, _last(given)}
    return not any(
        given.is_contiguous(memory_format=order) and weight.is_contiguous(memory_format=order)
        for order in orders
    )


def _last(tensor: torch.Tensor) -> torch.memory_format:
    known = {4: torch.channels_last, 5: torch.channels_last_3d}
    return known.get(tensor.ndim, torch.contiguous_format)


def _compare_layouts(layer: Layer, number: int, watch: Stopwatch) -> list[dict[str, Any]]:
    given = layer.inputs[0]
    weights_are_last = layout_of(layer.module.weight) == "channels_last"
    wanted = given.contiguous(
        memory_format=_last(given) if weights_are_last else torch.contiguous_format
    )
    module = copy.deepcopy(layer.module)
    times = watch.compare(
        _pass(module, given, layer.input_needs_grad),
        _pass(module, wanted, layer.input_needs_grad),
        0.6,
    )
    if times is None:
        return []
    return [
        {
            "name": "layer-layout", "model": number, "layer": layer.name, "where": layer.where,
            "layout": layout_of(given), "weights": layout_of(layer.module.weight),
            "kind": type(layer.module).__name__, "now_ms": times[0], "then_ms": times[1],
        }
    ]  # fmt: skip


def _pass(module: Any, given: torch.Tensor, needs_grad: bool) -> Callable[[], object]:
    def run() -> None:
        module.zero_grad()
        result = module(given.detach().requires_grad_(needs_grad))
        if result.requires_grad:
            result.sum().backward()

    return run


def _outermost(layers: list[Layer]) -> list[Layer]:
    names = {layer.name for layer in layers}
    return [
        layer for layer in layers if not any(layer.name.startswith(f"{name}.") for name in names)
    ]


def _time_unused(layer: Layer, number: int, watch: Stopwatch) -> list[dict[str, Any]]:
    module = copy.deepcopy(layer.module)
    times = watch.compare(lambda: module(*layer.inputs), lambda: None, 0.4)
    if times is None:
        return []
    return [
        {
            "name": "unused-layer", "model": number, "layer": layer.name, "where": layer.where,
            "now_ms": times[0], "then_ms": times[1],
        }
    ]  # fmt: skip
