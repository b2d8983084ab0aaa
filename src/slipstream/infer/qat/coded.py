"""A trained layer as it is kept: weights as whole numbers, packed, with a step for each channel."""

import copy
from typing import Any

import torch
from torch import nn

from slipstream.infer.qat.formats import packed, unpacked
from slipstream.infer.qat.layer import QatLayer, bias_of, call_with, weight_of


class CodedLayer(nn.Module):
    """A `QatLayer` in evaluation, its batch norm folded. What it keeps is as small as its format
    says; it computes in floating-point, with weights that it unpacks for each call.
    """

    stored: torch.Tensor
    step: torch.Tensor
    bias: torch.Tensor | None
    activation_step: torch.Tensor
    activation_zero: torch.Tensor

    def __init__(self, trained: QatLayer) -> None:
        super().__init__()
        self.form = trained.form
        self.shape = weight_of(trained.layer).shape
        self.activation_top = trained.activations.top
        codes, step, bias = _folded(trained)
        activation_step, zero = trained.activations.step_and_zero()
        self.register_buffer("stored", packed(codes, self.form))
        self.register_buffer("step", step)
        self.register_buffer("bias", bias)
        self.register_buffer("activation_step", activation_step)
        self.register_buffer("activation_zero", zero)
        self.layer = _without_weight(trained.layer)

    @property
    def codes(self) -> torch.Tensor:
        """Whole numbers, int8."""
        return unpacked(self.stored, self.form, self.shape)

    @property
    def weight(self) -> torch.Tensor:
        """In floating-point."""
        return self.codes.to(self.step.dtype) * self.step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the trained layer gives."""
        inputs = torch.fake_quantize_per_tensor_affine(
            x.float(), self.activation_step.float(), self.activation_zero, 0, self.activation_top
        ).to(x.dtype)
        return call_with(self.layer, inputs, self.weight, self.bias)


def _folded(trained: QatLayer) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Codes, steps and bias, with what the batch norm does in evaluation."""
    weight, bias = weight_of(trained.layer).detach(), bias_of(trained.layer)
    step = trained.form.step_of(weight)
    codes = trained.form.codes_of(weight, step)
    if trained.norm is None:
        return codes, step, None if bias is None else bias.detach().clone()
    norm: Any = trained.norm
    mean, variance = norm.running_mean.double(), norm.running_var.double()
    gamma = norm.weight.detach().double() if norm.weight is not None else torch.ones_like(mean)
    beta = norm.bias.detach().double() if norm.bias is not None else torch.zeros_like(mean)
    factor = gamma / torch.sqrt(variance + norm.eps)
    before = bias.detach().double() if bias is not None else torch.zeros_like(mean)
    ones = [1] * (weight.dim() - 1)
    signs = torch.where(factor < 0, -1.0, 1.0).to(codes.dtype).reshape(-1, *ones)
    steps = (step.double() * factor.abs().reshape(-1, *ones)).to(step.dtype)
    return codes * signs, steps, ((before - mean) * factor + beta).to(weight.dtype)


def _without_weight(layer: nn.Module) -> nn.Module:
    """What else a layer knows: stride, padding, groups."""
    bare = copy.copy(layer)
    bare._parameters = dict.fromkeys(layer._parameters)
    return bare.eval()
