"""A trained layer of 8 bits that computes with whole numbers, where torch has a kernel for that."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from slipstream.infer.qat.coded import CodedLayer
from slipstream.infer.qat.layer import QatLayer, call_with

_BYTE = 255
_CLOSE = 1e-4  # of the largest result: what another order of sums may do


@dataclass(frozen=True)
class _Packed:
    """What a kernel is called with; the weight in an order of its own."""

    weight: torch.Tensor
    steps: torch.Tensor
    zeros: torch.Tensor


class IntegerLayer(CodedLayer):
    """Multiplies uint8 inputs with int8 weights and adds in int32, in oneDNN's kernels. For
    `torch.compile` and `torch.export` it is the same layer between torch's operators that quantize
    and dequantize, of which Inductor makes such kernels when weights are frozen. On other devices
    and in other precisions it computes in floating-point.
    """

    _packed: _Packed | None
    _step: float
    _zero: int

    def __init__(self, trained: QatLayer) -> None:
        super().__init__(trained)
        self._forget()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the trained layer gives."""
        if torch.compiler.is_compiling() and self.activation_top == _BYTE:
            return self._as_graph(x)
        if x.dtype != torch.float32 or self.step.dtype != x.dtype or x.device.type != "cpu":
            return super().forward(x)
        is_one = not isinstance(self.layer, nn.Linear) and x.dim() != len(self.shape)
        if is_one or not x.numel():  # a sample and no batch, or none at all
            return super().forward(x)
        if self._packed is None:
            self._packed = _pack(self)
        own, step, zero = self._packed, self._step, self._zero
        inputs = (x * (1 / step)).round_().add_(zero).clamp_(0, self.activation_top)
        given = (inputs.to(torch.uint8), step, zero, own.weight, own.steps, own.zeros)
        as_float: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "")
        if isinstance(self.layer, nn.Linear):
            found = torch.ops.onednn.qlinear_pointwise(*given, self.bias, *as_float)
        else:
            found = torch.ops.onednn.qconv_pointwise(
                *given, self.bias, *_geometry(self.layer), *as_float
            )
        # Its convolutions give channels-last results whatever they are given.
        return found.contiguous() if x.is_contiguous() else found  # type: ignore[no-any-return]

    def _as_graph(self, x: torch.Tensor) -> torch.Tensor:
        from torch.ao.quantization.fx import _decomposed  # noqa: F401 (defines the operators)

        known = torch.ops.quantized_decomposed
        scale = (self._step, self._zero, 0, _BYTE, torch.uint8)
        inputs = known.dequantize_per_tensor(known.quantize_per_tensor(x, *scale), *scale)
        steps = self.step.flatten()
        zeros = torch.zeros_like(steps, dtype=torch.int64)
        top = self.form.top
        weight = known.dequantize_per_channel(self.stored, steps, zeros, 0, -top, top, torch.int8)
        return call_with(self.layer, inputs, weight, self.bias)

    def _forget(self) -> None:
        """What was made of the buffers is made of them anew."""
        self._packed = None
        self._step, self._zero = float(self.activation_step), int(self.activation_zero)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is packed for the kernels of this machine."""
        return {**self.__dict__, "_packed": None}

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._forget()


def integer_layer(trained: QatLayer) -> tuple[IntegerLayer | None, str]:
    """The layer if a kernel is there and gives what the trained layer gives, else None and why.
    It is tried on inputs of a few pixels.
    """
    layer: Any = trained.layer
    if trained.form.stored_bits != 8:
        return None, f"torch has no kernel for {trained.form.name} weights"
    if weight_device(trained).type != "cpu":
        return None, f"torch has no such kernel for {weight_device(trained).type}"
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) and (
        layer.padding_mode != "zeros" or isinstance(layer.padding, str)
    ):
        return None, f"padding {layer.padding_mode}, {layer.padding!r} is not one of the kernels'"
    made = IntegerLayer(trained)
    inputs = _inputs_on_steps(made)
    try:
        with torch.no_grad():
            found, right = made(inputs), CodedLayer.forward(made, inputs)
    except Exception as error:  # an operator that this torch does not have, or that does not do it
        first = str(error).splitlines() or [""]
        return None, f"torch has no kernel for it here: {type(error).__name__}: {first[0][:120]}"
    apart = float((found - right).abs().max())
    if not apart <= _CLOSE * float(right.abs().max()):
        return None, f"the kernel's results are {apart:.1e} away from what was trained"
    return made, "int8 kernels of oneDNN"


def weight_device(trained: QatLayer) -> torch.device:
    """Where the layer is."""
    return trained.activations.low.device


def _inputs_on_steps(made: IntegerLayer) -> torch.Tensor:
    """Inputs that are steps of the range exactly, so that both ways round them to the same."""
    layer: Any = made.layer
    if isinstance(layer, nn.Linear):
        shape: tuple[int, ...] = (3, layer.in_features)
    else:
        sides = zip(layer.kernel_size, layer.dilation, strict=True)
        shape = (2, layer.in_channels, *(dilation * (kernel - 1) + 4 for kernel, dilation in sides))
    own = torch.Generator("cpu").manual_seed(0)
    steps = torch.randint(0, made.activation_top + 1, shape, generator=own, device="cpu")
    return (steps - made.activation_zero) * made.activation_step


def _geometry(layer: Any) -> tuple[Any, ...]:
    return layer.stride, layer.padding, layer.dilation, layer.groups


def _pack(made: IntegerLayer) -> _Packed:
    codes, steps = made.codes, made.step.flatten().contiguous()
    if isinstance(made.layer, nn.Linear):
        weight = torch.ops.onednn.qlinear_prepack(codes, None)
    else:
        weight = torch.ops.onednn.qconv_prepack(
            codes, steps, made._step, made._zero, *_geometry(made.layer), None
        )
    return _Packed(weight, steps, torch.zeros(steps.numel(), dtype=torch.int32))
