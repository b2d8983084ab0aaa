"""A convolution or linear layer as it was called: enough to call it again, alone, or another one
like it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.nn import functional

_NORMALISED = 0.05  # of random weights: nothing grows out of its type


@dataclass(frozen=True)
class Layer:
    """Equal layers compare equal. `input_shape` is (rows, features) of a linear layer and has the
    batch in front, then the channels, of a convolution.
    """

    kind: Literal["convolution", "linear"]
    input_shape: tuple[int, ...]
    out_channels: int
    has_bias: bool
    dtype: torch.dtype
    device: torch.device
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    groups: int = 1
    transposed: bool = False
    channels_last: bool = False

    @property
    def in_channels(self) -> int:
        """Or features."""
        return self.input_shape[1]

    @property
    def is_pointwise(self) -> bool:
        """Whether it mixes channels alone, one place at a time."""
        return all(size == 1 for size in self.kernel)

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is on its own."""
        return self.groups > 1 and self.groups == self.in_channels == self.out_channels

    @property
    def places(self) -> int:
        """At which the weights are applied: rows, or pixels of all pictures of the batch."""
        batch, sizes = self.input_shape[0], self.input_shape[2:]
        if self.transposed:
            return batch * math.prod(sizes)
        return batch * math.prod(map(_out_size, sizes, self.kernel, self.stride, self.padding,
                                     self.dilation))  # fmt: skip

    @property
    def flops(self) -> int:
        """As torch counts them: two for each multiplication with its addition."""
        weights = self.in_channels * self.out_channels // self.groups * math.prod(self.kernel)
        return 2 * self.places * weights

    def with_channels(self, into: int, out: int, groups: int = 1) -> "Layer":
        """The same on other channels."""
        batch, _, *sizes = self.input_shape
        return replace(self, input_shape=(batch, into, *sizes), out_channels=out, groups=groups)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.input_shape))
        channels = f"{self.in_channels} -> {self.out_channels}"
        if self.kind == "linear":
            return f"linear {channels} on {self.input_shape[0]} rows"
        kernel = "x".join(map(str, self.kernel))
        groups = f" in {self.groups} groups" if self.groups > 1 else ""
        turned = "transposed " if self.transposed else ""
        return f"{turned}{kernel} convolution {channels}{groups} on {shape}"


def convolution_layer(args: Sequence[Any]) -> Layer:
    """From the arguments of `torch.convolution`."""
    given, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    out = weight.shape[1] * groups if transposed else weight.shape[0]
    count = weight.dim() - 2
    return Layer(
        "convolution", tuple(given.shape), out, bias is not None, given.dtype, given.device,
        kernel=tuple(weight.shape[2:]), stride=_each(stride, count), padding=_each(padding, count),
        dilation=_each(dilation, count), output_padding=_each(output_padding, count),
        groups=groups, transposed=transposed,
        channels_last=_is_channels_last(given) or _is_channels_last(weight),
    )  # fmt: skip


def linear_layer(rows: torch.Tensor, out: int, has_bias: bool) -> Layer:
    """From what it multiplies; all dimensions but the last are rows."""
    shape = (rows.numel() // rows.shape[-1], rows.shape[-1])
    return Layer("linear", shape, out, has_bias, rows.dtype, rows.device)


def call_of(layers: Sequence[Layer]) -> Callable[[], object]:
    """One call of each in turn, on random numbers of its own; for where gradients are off."""
    calls = [_single_call(layer) for layer in layers]
    if len(calls) == 1:
        return calls[0]

    def call() -> None:
        for each in calls:
            each()

    return call


def _single_call(layer: Layer) -> Callable[[], object]:
    def random(*shape: int) -> torch.Tensor:
        made = torch.randn(shape, dtype=layer.dtype, device=layer.device) * _NORMALISED
        return made.to(memory_format=torch.channels_last) if _is_last(layer, made) else made

    given = random(*layer.input_shape)
    bias = random(layer.out_channels) if layer.has_bias else None
    if layer.kind == "linear":
        weight = random(layer.out_channels, layer.in_channels)
        return lambda: functional.linear(given, weight, bias)
    ends = (layer.in_channels, layer.out_channels // layer.groups)
    if not layer.transposed:
        ends = (layer.out_channels, layer.in_channels // layer.groups)
    weight = random(*ends, *layer.kernel)
    return lambda: torch.convolution(
        given, weight, bias, layer.stride, layer.padding, layer.dilation, layer.transposed,
        layer.output_padding, layer.groups,
    )  # fmt: skip


def _is_channels_last(tensor: torch.Tensor) -> bool:
    """And not in the usual order as well, as one of a single channel is."""
    return (
        tensor.dim() == 4
        and not tensor.is_contiguous()
        and tensor.is_contiguous(memory_format=torch.channels_last)
    )


def _is_last(layer: Layer, made: torch.Tensor) -> bool:
    return layer.channels_last and made.dim() == 4


def _each(values: Sequence[int], count: int) -> tuple[int, ...]:
    """One number may stand for all dimensions."""
    return tuple(values) * (count if len(values) == 1 else 1)


def _out_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
