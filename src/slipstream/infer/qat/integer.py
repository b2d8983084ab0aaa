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
    and in other precisions it computes in floating-point, and so it does on processors that add
    products of bytes in 16 bits, where they overflow.
    """

    _packed: _Packed | None
    _is_exact: bool | None  # on this machine; None: not looked at yet
    _step: float
    _zero: int

    def __init__(self, trained: QatLayer) -> None:
        super().__init__(trained)
        self._forget()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the trained layer gives."""
        is_compiling = torch.compiler.is_compiling()
        if is_compiling and self._is_exact and self.activation_top == _BYTE:
            return self._as_graph(x)
        if x.dtype != torch.float32 or self.step.dtype != x.dtype or x.device.type != "cpu":
            return super().forward(x)
        is_one = not isinstance(self.layer, nn.Linear) and x.dim() != len(self.shape)
        if is_one or not x.numel():  # a sample and no batch, or none at all
            return super().forward(x)
        if self._is_exact is None and not is_compiling:
            self._is_exact = _is_exact(self)
        return self.in_whole_numbers(x) if self._is_exact else super().forward(x)

    def in_whole_numbers(self, x: torch.Tensor) -> torch.Tensor:
        """By the kernel, right or wrong."""
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
        self._packed = self._is_exact = None
        self._step, self._zero = float(self.activation_step), int(self.activation_zero)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is packed for the kernels of this machine, and whether they are right."""
        return {**self.__dict__, "_packed": None, "_is_exact": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """On a machine that may be another one."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._look()

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._forget()
        self._look()

    def _look(self) -> None:
        """Now, as a compiler cannot."""
        if self.step.device.type == "cpu" and self.step.dtype == torch.float32:
            self._is_exact = _is_exact(self)


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
    try:
        apart, largest = _compare(made)
    except Exception as error:  # an operator that this torch does not have, or that does not do it
        first = str(error).splitlines() or [""]
        return None, f"torch has no kernel for it here: {type(error).__name__}: {first[0][:120]}"
    if not apart <= _CLOSE * largest:
        return None, f"the kernel is {apart:.1e} of {largest:.1e} away from what was trained"
    made._is_exact = True
    return made, "int8 kernels of oneDNN"


def _is_exact(made: IntegerLayer) -> bool:
    try:
        apart, largest = _compare(made)
    except Exception:
        return False
    return apart <= _CLOSE * largest


@torch.no_grad()
def _compare(made: IntegerLayer) -> tuple[float, float]:
    """How far the kernel is from what was trained, and the largest result."""
    inputs = _inputs_on_steps(made)
    with torch.autocast("cpu", enabled=False):
        found, right = made.in_whole_numbers(inputs), CodedLayer.forward(made, inputs)
    return float((found - right).abs().max()), float(right.abs().max())


def weight_device(trained: QatLayer) -> torch.device:
    """Where the layer is."""
    return trained.activations.low.device


def _inputs_on_steps(made: IntegerLayer) -> torch.Tensor:
    """Inputs that are steps of the range exactly, so that both ways round them to the same. The
    first sample is the one whose sums are the largest.
    """
    layer: Any = made.layer
    if isinstance(layer, nn.Linear):
        shape: tuple[int, ...] = (3, layer.in_features)
    else:
        sides = zip(layer.kernel_size, layer.dilation, strict=True)
        shape = (2, layer.in_channels, *(dilation * (kernel - 1) + 4 for kernel, dilation in sides))
    own = torch.Generator("cpu").manual_seed(0)
    steps = torch.randint(0, made.activation_top + 1, shape, generator=own, device="cpu")
    steps[0] = made.activation_top
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
