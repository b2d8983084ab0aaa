"""torchao: linear layers with int8 weights, and maybe int8 inputs, compiled."""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import nn

from slipstream.infer.change import AROUND, ENGINE, GRAPH, LAYOUT, Change
from slipstream.infer.changes import compiled
from slipstream.infer.subject import Subject

# It compiles by itself, and its tensors are not those that other precisions take.
BUILDS_ON = (GRAPH, LAYOUT, AROUND)

_LEAST_SHARE = 0.5


def torchao(name: str) -> Any:
    """A module of torchao, without what torch and itself log while it is loaded: such as of its
    kernels for GPUs that are not there.
    """
    logs = [logging.getLogger(each) for each in ("torch.utils._pytree", "torchao")]
    before = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        return import_module(f"torchao.{name}")
    finally:
        for log, was_disabled in zip(logs, before, strict=True):
            log.disabled = was_disabled


def why_no_torchao() -> str | None:
    """Where it is not installed."""
    return None if find_spec("torchao") else "torchao is not installed: pip install torchao"


def _quantized(config: str) -> Any:
    """A change that gives linear layers weights of another kind, and compiles the model: without
    that, they are only slower. Frozen weights would be floating-point numbers again.
    """

    def apply(model: nn.Module, subject: Subject) -> nn.Module:
        quantization = torchao("quantization")
        before = _plain_weights(model)
        quantization.quantize_(model, getattr(quantization, config)())
        if _plain_weights(model) == before:
            raise RuntimeError("torchao quantized no layer of this model")
        return compiled.COMPILE.apply(model, subject)

    return apply


def _plain_weights(model: nn.Module) -> int:
    return sum(type(part.weight) is nn.Parameter for part in _linear_layers(model))


def _linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [part for part in model.modules() if isinstance(part, nn.Linear)]


def why_too_few_linear(subject: Subject) -> str | None:
    """Where most of the model would stay as it is."""
    linear = sum(part.weight.numel() for part in _linear_layers(subject.model))
    every = sum(each.numel() for each in subject.model.parameters())
    if linear < _LEAST_SHARE * every or not linear:
        return f"linear layers hold {linear / max(every, 1):.0%} of the parameters, less than half"
    return None


def _why_not(subject: Subject) -> str | None:
    why = why_no_torchao() or compiled.COMPILE.why_not(subject) or why_too_few_linear(subject)
    if why is not None:
        return why
    if subject.device.type not in ("cpu", "cuda"):
        return "the model is neither on the CPU nor on a CUDA device"
    return None


INT8_WEIGHTS = Change(
    "torchao int8 weights", "lossy", ENGINE, _quantized("Int8WeightOnlyConfig"), _why_not, BUILDS_ON
)
INT8_DYNAMIC = Change(
    "torchao int8 dynamic", "lossy", ENGINE, _quantized("Int8DynamicActivationInt8WeightConfig"),
    _why_not, BUILDS_ON,
)  # fmt: skip
