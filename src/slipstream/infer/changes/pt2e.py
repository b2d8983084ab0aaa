"""int8 by torch's exporter, torchao's quantizers and Inductor, which makes integer kernels of it.

Static: ranges of activations are seen beforehand, on data to calibrate with. Dynamic: they are
taken of each batch, for linear layers only, and for models that these are most of.
"""

import functools
import platform
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_structure

from slipstream.infer.change import ENGINE, Change
from slipstream.infer.changes import compiled
from slipstream.infer.changes.torchao import (
    BUILDS_ON,
    torchao,
    why_no_torchao,
    why_too_few_linear,
)
from slipstream.infer.fixed import FixedWeights
from slipstream.infer.fold import fold, folds_of
from slipstream.infer.inputs import Inputs
from slipstream.infer.keeping import TookTooLong
from slipstream.infer.subject import Subject

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CONVOLUTIONS = ("Conv1d", "Conv2d", "Conv3d")

Quantizer = Callable[[bool], Any]


class Frozen(FixedWeights):
    """A quantized graph, compiled with its weights as constants, for each shape when it comes. Such
    a graph has no mode: `train` and `eval` leave it alone.
    """

    def __init__(self, graph: nn.Module, is_dynamic: bool | None = None) -> None:
        super().__init__()
        self.graph = graph
        self.call: Any = torch.compile(compiled.function_of(graph), dynamic=is_dynamic)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the graph gives."""
        with compiled.freezing():
            return self.call(*args, **kwargs)

    def train(self, mode: bool = True) -> "Frozen":
        """The graph itself knows no modes."""
        self.training = mode
        return self


def _quantized(model: nn.Module, subject: Subject, is_dynamic: bool) -> nn.Module:
    fold(model, folds_of(model, subject.inputs))
    _scale_instead(model)
    calls = [subject.inputs] if is_dynamic else list(subject.calibration)
    return _int8(model, subject.inputs, calls, _quantizer(is_dynamic)(is_dynamic))


def _int8(model: nn.Module, inputs: Inputs, calls: list[Inputs], quantizer: Any) -> Frozen:
    """Raises `RuntimeError` where nothing is quantized, or only in name."""
    # With one channel Inductor mistakes the layout, unless each size of a batch is compiled alone.
    has_one = any(isinstance(p, nn.Conv2d) and p.in_channels == 1 for p in model.modules())
    made = Frozen(_converted(model, inputs, calls, quantizer), False if has_one else None)
    operators, kernels = _quantized_weights(made.graph), _integer_kernels()
    if not operators:
        raise RuntimeError("torchao quantized no operator of this model")
    given = inputs.copy()  # here, as tensors of inference mode are compiled for apart
    with torch.inference_mode():
        given(made)
    if _integer_kernels() == kernels:
        raise RuntimeError(f"torch.compile made no integer kernel of {operators} int8 operators")
    return made


def _converted(model: nn.Module, inputs: Inputs, calls: list[Inputs], quantizer: Any) -> Any:
    """The graph, with operators that quantize and dequantize around those with int8 weights."""
    quantize = torchao("quantization.pt2e.quantize_pt2e")
    with torch.no_grad():
        graph, is_any_batch = _exported(model, inputs)
        _keep_apart(graph)
        prepared = quantize.prepare_pt2e(graph, quantizer)
        first = 1 if is_any_batch else 0
        fitting = [call for call in calls if _form(call, first) == _form(inputs, first)]
        if not fitting:
            raise RuntimeError(
                f"none of {len(calls)} calls to calibrate with has the form of example_inputs, and "
                "the model cannot be exported for another"
            )
        for call in fitting:
            call.copy()(prepared)
        return quantize.convert_pt2e(prepared)


def _exported(model: nn.Module, inputs: Inputs) -> tuple[Any, bool]:
    """The graph, and whether it takes batches of any size."""
    given = inputs.copy()
    sizes = {tensor.shape[0] for tensor in given.tensors() if tensor.dim()}
    if sizes == {1}:  # one is a size that is never generalized
        given = given.map(lambda t: torch.cat([t, t]) if t.dim() else t)
    if len(sizes) == 1:
        batch = torch.export.Dim("batch", min=1)
        shapes = torch.export.ShapesCollection()  # type: ignore[no-untyped-call]
        for tensor in given.tensors():
            if tensor.dim():
                shapes[tensor] = {0: batch}
        try:
            return _export(model, given, shapes), True
        except TookTooLong:
            raise
        except Exception:  # a size that is written into the model
            pass
    return _export(model, inputs.copy(), None), False


def _export(model: nn.Module, inputs: Inputs, shapes: Any) -> Any:
    exported = torch.export.export(
        model, inputs.args, dict(inputs.kwargs), dynamic_shapes=shapes, strict=False
    )
    return exported.module()


class _Scale(nn.Module):
    """What a batch norm does in evaluation."""

    factor: torch.Tensor
    shift: torch.Tensor

    def __init__(self, norm: Any) -> None:
        super().__init__()
        mean, variance = norm.running_mean.double(), norm.running_var.double()
        gamma = norm.weight.double() if norm.weight is not None else torch.ones_like(mean)
        beta = norm.bias.double() if norm.bias is not None else torch.zeros_like(mean)
        factor = gamma / torch.sqrt(variance + norm.eps)
        self.register_buffer("factor", factor.to(norm.running_mean.dtype))
        self.register_buffer("shift", (beta - mean * factor).to(norm.running_mean.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Channels are the second dimension."""
        shape = (-1, *[1] * (x.dim() - 2))
        return x * self.factor.reshape(shape) + self.shift.reshape(shape)


def _scale_instead(model: nn.Module) -> None:
    """In place of batch norms that cannot be folded: torchao would fold them all the same, and
    spend half a minute on looking for those of training.
    """
    for part in list(model.modules()):
        for name, child in part._modules.items():
            # One of its own class may compute something else.
            if type(child) in _NORMS and getattr(child, "running_mean", None) is not None:
                part._modules[name] = _Scale(child)


def _keep_apart(graph: Any) -> None:
    """A copy between a batch norm that is a function and what it follows. torchao would fold it,
    also where a layer is used twice, and then give other results.
    """
    for node in list(graph.graph.nodes):
        if "batch_norm" in str(node.target) and node.op == "call_function":
            with graph.graph.inserting_before(node):
                copied = graph.graph.call_function(torch.ops.aten.clone.default, (node.args[0],))
            copied.meta["val"] = node.args[0].meta["val"]
            node.update_arg(0, copied)
    graph.recompile()


def _form(inputs: Inputs, first: int) -> Any:
    """Nesting, and shapes from a dimension on."""
    return tree_structure((inputs.args, dict(inputs.kwargs))), [
        tuple(tensor.shape[first:]) for tensor in inputs.tensors()
    ]


def _quantized_weights(graph: Any) -> int:
    """Operators with weights of whole numbers."""
    return sum(
        "dequantize" in str(node.target) and node.args[0].op == "get_attr"
        for node in graph.graph.nodes
        if node.op == "call_function" and node.args and hasattr(node.args[0], "op")
    )


def _integer_kernels() -> int:
    """That Inductor has made in this process."""
    from torch._dynamo.utils import counters

    names = ("qconv_weight_prepack_matcher_count", "qlinear_weight_prepack_matcher_count")
    return sum(counters["inductor"][name] for name in names)


def _x86(is_dynamic: bool) -> Any:
    """Without VNNI, activations of 7 bits: with 8, sums in between would overflow."""
    known = torchao("quantization.pt2e.quantizer.x86_inductor_quantizer")
    is_narrow = _is_x86() and not torch.cpu._is_vnni_supported()
    config = known.get_default_x86_inductor_quantization_config(
        is_dynamic=is_dynamic, reduce_range=is_narrow
    )
    return _configured(known.X86InductorQuantizer(), config, is_dynamic)


def _arm(is_dynamic: bool) -> Any:
    known = torchao("quantization.pt2e.quantizer.arm_inductor_quantizer")
    config = known.get_default_arm_inductor_quantization_config(is_dynamic=is_dynamic)
    return _configured(known.ArmInductorQuantizer(), config, is_dynamic)


def _configured(quantizer: Any, config: Any, is_dynamic: bool) -> Any:
    if is_dynamic:  # for convolutions there is no such kernel
        return quantizer.set_module_type_qconfig(nn.Linear, config)
    return quantizer.set_global(config)


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


@functools.cache
def _quantizer(is_dynamic: bool) -> Quantizer:
    """The one for this processor. That for Arm only if Inductor makes integer kernels of what it
    gives, else everything would be computed in floating-point: it is tried on one layer.
    """
    if platform.machine().lower() not in ("aarch64", "arm64"):
        return _x86
    inputs = Inputs((torch.ones(2, 16),))
    try:
        with torch.random.fork_rng(devices=[]):
            _int8(nn.Linear(16, 16).eval(), inputs, [inputs], _arm(is_dynamic))
    except TookTooLong:
        raise
    except Exception:
        return _x86
    return _arm


def _why_not(subject: Subject) -> str | None:
    if why := why_no_torchao() or compiled.COMPILE.why_not(subject):
        return why
    if subject.device.type != "cpu":
        return "the model is not on the CPU"
    return None


def _why_not_static(subject: Subject) -> str | None:
    if not subject.count("Linear", *_CONVOLUTIONS):
        return "there is no convolution and no linear layer"
    if not subject.calibration:
        return "there is nothing to calibrate with: a third of data is, if it has three batches"
    return _why_not(subject)


def _why_not_dynamic(subject: Subject) -> str | None:
    return why_too_few_linear(subject) or _why_not(subject)


INT8_STATIC = Change(
    "int8 static", "lossy", ENGINE,
    lambda model, subject: _quantized(model, subject, is_dynamic=False), _why_not_static, BUILDS_ON,
)  # fmt: skip
INT8_DYNAMIC = Change(
    "int8 dynamic", "lossy", ENGINE,
    lambda model, subject: _quantized(model, subject, is_dynamic=True), _why_not_dynamic, BUILDS_ON,
)  # fmt: skip
