"""A model made ready for training with quantized weights and activations."""

from typing import Any

import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.fold import folds_of
from slipstream.infer.gates.reference import failure_of
from slipstream.infer.inputs import Inputs, inputs_of
from slipstream.infer.keeping import everything_as_before
from slipstream.infer.qat.formats import Bits, format_of
from slipstream.infer.qat.layer import LAYERS, QatLayer
from slipstream.infer.qat.parts import replaced
from slipstream.infer.qat.ranges import ActivationRange
from slipstream.infer.subject import deep_copy, expect_module

_ACTIVATION_BITS = (8, 4, 2)


def prepare_qat(
    model: nn.Module, example_inputs: Any, *, bits: Bits = 8, activation_bits: int = 8,
    skip_first_last: bool = True,
) -> nn.Module:  # fmt: skip
    """A copy whose convolutions and linear layers compute with weights of `bits` (8, 4, 2,
    "ternary" or "binary", a step per output channel) and with inputs of `activation_bits`. Train it
    as any model, with an optimizer of its own; then `convert_qat`. The model itself stays.

    The first and the last layer that are called stay as they are unless told otherwise: they are
    small, and cost the most accuracy. `example_inputs` show that, which batch norms can be folded,
    and the first ranges of activations: give real ones.

    >>> made = prepare_qat(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(),
    ...     nn.Linear(8, 2)), torch.randn(16, 4), bits="ternary")
    >>> made[2].weight.sign().unique().tolist()
    [-1.0, 0.0, 1.0]
    """
    expect_module(model)
    form = format_of(bits)
    if activation_bits not in _ACTIVATION_BITS:
        raise UsageError(f"activation_bits is {activation_bits!r}; expected 8, 4 or 2.")
    if any(isinstance(part, QatLayer) for part in model.modules()):
        raise UsageError(
            f"{type(model).__name__} is made ready already: train it, or begin with the model that "
            "it was made of."
        )
    inputs = inputs_of(example_inputs)
    with everything_as_before(model):
        made = deep_copy(model)
        modes = {part: part.training for part in made.modules()}
        made.eval()
        _call_every_layer(made)
        called = _called_layers(made, inputs)
        chosen = called[1:-1] if skip_first_last else called
        if not chosen:
            raise UsageError(_nothing_to_do(model, called, skip_first_last))
        norms = dict(folds_of(made, inputs))
        for name in chosen:
            norm_name = norms.get(name)
            norm = made.get_submodule(norm_name) if norm_name else None
            layer = QatLayer(made.get_submodule(name), norm, form, activation_bits)
            made = replaced(made, made.get_submodule(name), layer)
            if norm is not None:
                made = replaced(made, norm, nn.Identity(), outside=layer)
        _see_ranges(made, inputs)
        for part in made.modules():
            part.training = modes.get(part, model.training)
    return made


def _call_every_layer(model: nn.Module) -> None:
    """torch's transformer has a way around its linear layers, which takes their weights alone."""
    for part in model.modules():
        if isinstance(part, nn.TransformerEncoderLayer):
            part.activation_relu_or_gelu = 0


def _called_layers(model: nn.Module, inputs: Inputs) -> list[str]:
    """Names of layers that can be quantized, in the order in which they are called."""
    names: dict[str, None] = {}
    handles = [
        part.register_forward_pre_hook(lambda _, __, name=name: names.setdefault(name))
        for name, part in model.named_modules()
        if type(part) in LAYERS and not _is_touched(part)
    ]
    try:
        with torch.no_grad():
            inputs.copy()(model)
    except Exception as error:
        raise UsageError(failure_of(model, inputs, "inputs", error)) from error
    finally:
        for handle in handles:
            handle.remove()
    return list(names)


def _is_touched(part: nn.Module) -> bool:
    """By hooks or by a forward of its own: both would be passed over."""
    return bool(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))


def _nothing_to_do(model: nn.Module, called: list[str], skips: bool) -> str:
    found = f"calls {len(called)} convolutions and linear layers of torch's own classes"
    do = " Pass skip_first_last=False to quantize these." if skips and called else ""
    return f"{type(model).__name__} {found}; nothing is left to quantize.{do}"


def _see_ranges(model: nn.Module, inputs: Inputs) -> None:
    for part in model.modules():
        part.training = isinstance(part, ActivationRange)
    with torch.no_grad():
        inputs.copy()(model)
