"""A layer that trains as if its weights and inputs were quantized."""

from typing import Any

import torch
from torch import nn

from slipstream.infer.qat.formats import Format
from slipstream.infer.qat.ranges import ActivationRange

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


class QatLayer(nn.Module):
    """A convolution or linear layer with the batch norm behind it, if there is one.

    The batch norm keeps its statistics and learns as ever. Its factor per channel changes only the
    steps of the weights, so that this is the layer that is left when it is folded.
    """

    def __init__(
        self, layer: nn.Module, norm: nn.Module | None, form: Format, activation_bits: int
    ) -> None:
        super().__init__()
        self.layer = layer
        self.norm = norm
        self.form = form
        self.activations = ActivationRange(activation_bits).to(weight_of(layer).device)

    def __getattr__(self, name: str) -> Any:
        """What models ask of a layer, such as how many features it gives."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("layer", "norm", "form", "activations"):
                raise
            return getattr(self.layer, name)

    @property
    def weight(self) -> torch.Tensor:
        """As it is used: quantized."""
        return self.form.quantized(weight_of(self.layer))

    @property
    def bias(self) -> torch.Tensor | None:
        """Of the layer; it is not quantized."""
        return bias_of(self.layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the layer gives for quantized inputs."""
        result = call_with(self.layer, self.activations(x), self.weight, self.bias)
        return result if self.norm is None else self.norm(result)


def weight_of(layer: Any) -> torch.Tensor:
    """Of a convolution or linear layer."""
    return layer.weight  # type: ignore[no-any-return]


def bias_of(layer: Any) -> torch.Tensor | None:
    """Of a convolution or linear layer; None if it has none."""
    return layer.bias  # type: ignore[no-any-return]


def call_with(
    layer: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """What a layer gives with another weight and bias."""
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(x, weight, bias)
    return layer._conv_forward(x, weight, bias)  # type: ignore[no-any-return]
