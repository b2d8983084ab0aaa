"""torch's own compilers: Inductor while the process runs, or ahead of time, and TorchScript."""

import copy
import itertools
import os
import shutil
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from slipstream.infer.change import ENGINE, Change
from slipstream.infer.decisions import looks_at_values
from slipstream.infer.elsewhere.asking import has_hooks
from slipstream.infer.elsewhere.packaged import packaged
from slipstream.infer.elsewhere.signature import signature_of
from slipstream.infer.fixed import FixedWeights
from slipstream.infer.inputs import Inputs
from slipstream.infer.keeping import TookTooLong
from slipstream.infer.leaves import changed
from slipstream.infer.subject import Subject

_ALIGNED = 16  # bytes
_BY_VALUES = "what it computes may depend on the values of its inputs"
_numbers = itertools.count()
_TRACED_ONCE: type[Warning] = getattr(torch.jit, "TracerWarning", Warning)


class Called(nn.Module):
    """A model that is called through something made of it; `model` keeps its parameters. `make`
    makes that of a copy of the model; without it, it holds what it needs.
    """

    def __init__(self, model: nn.Module, call: Any, make: Any = None) -> None:
        super().__init__()
        self.model = model
        self.call = call
        self._make = make

    def __deepcopy__(self, memo: dict[int, Any]) -> "Called":
        """Calls what is made of the copy."""
        made = self.__class__.__new__(self.__class__)
        memo[id(self)] = made
        shared = ("call", "_make")
        made.__dict__ = {
            name: value if name in shared else copy.deepcopy(value, memo)
            for name, value in self.__dict__.items()
        }
        if self._make is not None:
            made.call = self._make(made.model)
        return made

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives."""
        return self.call(*args, **kwargs)


def function_of(model: nn.Module) -> Any:
    """A function that calls the model, with code of its own: the compiler counts what it has
    compiled by code, and stops after eight variants of the same.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    code = call.__code__.replace(co_name=f"call_variant_{next(_numbers)}")
    return types.FunctionType(code, globals(), code.co_name, None, call.__closure__)


def _compiler(**options: Any) -> Callable[[nn.Module], Any]:
    def make(model: nn.Module) -> Any:
        return torch.compile(function_of(model), **options)

    return make


def why_no_compiler(device: torch.device) -> str | None:
    """Why nothing can be compiled for a device; None where nothing speaks against it."""
    if device.type == "cpu" and shutil.which(os.environ.get("CXX", "g++")) is None:
        return "torch.compile needs a C++ compiler, and there is none"
    return None


def compiled_graphs() -> int:
    """By torch.compile, in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _why_not(subject: Subject) -> str | None:
    return why_no_compiler(subject.device)


def _why_not_cuda(subject: Subject) -> str | None:
    return None if subject.device.type == "cuda" else "the model is not on a CUDA device"


def _why_not_alone(subject: Subject) -> str | None:
    """What is called without Python calls no hooks of it."""
    return "it calls hooks, which a graph would not" if has_hooks(subject.model) else None


def _why_not_ahead(subject: Subject) -> str | None:
    return _why_not(subject) or _why_not_alone(subject)


def _why_no_graph(subject: Subject) -> str | None:
    return _why_not_cuda(subject) or _why_not_alone(subject)


class Frozen(FixedWeights, Called):
    """A compiled model whose weights are constants of what was compiled."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives."""
        with freezing():
            return self.call(*args, **kwargs)


@contextmanager
def freezing() -> Iterator[None]:
    """Inductor's own setting: given to `torch.compile` as an option, it comes too late for the
    weights to be constants.
    """
    config: Any = torch._inductor.config
    before = config.freezing
    config.freezing = True
    try:
        yield
    finally:
        config.freezing = before


def frozen(name: str, **options: Any) -> Change:
    """`torch.compile` with these options, and weights as constants."""
    make = _compiler(**options)

    def apply(model: nn.Module, subject: Subject) -> nn.Module:
        return Frozen(model, make(model), make)

    return Change(name, "exact", ENGINE, apply, _why_not)


def compiled(name: str, **options: Any) -> Change:
    """`torch.compile` with these options."""
    make = _compiler(**options)

    def apply(model: nn.Module, subject: Subject) -> nn.Module:
        return Called(model, make(model), make)

    return Change(name, "exact", ENGINE, apply, _why_not)


class _Copied(Called):
    """A compiled model whose results lie in memory that its next call writes to."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives, in tensors of the caller's own."""
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return changed(self.call(*args, **kwargs), torch.clone)


def _with_cuda_graphs(name: str, mode: str) -> Change:
    make = _compiler(mode=mode)

    def apply(model: nn.Module, subject: Subject) -> nn.Module:
        return _Copied(model, make(model), make)

    return Change(name, "exact", ENGINE, apply, _why_not_cuda)


def _ahead_of_time(model: nn.Module, subject: Subject) -> nn.Module:
    made = packaged(model, subject.inputs, subject.device)
    return _ForLayouts(model, made, subject.inputs)


class _ForCalls(FixedWeights, Called):
    """What was made of one call, for those that are like it; others are a matter of the model."""

    def __init__(self, model: nn.Module, call: Any, inputs: Inputs) -> None:
        super().__init__(model, call)
        self._signature = signature_of(inputs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives."""
        tensors = self._signature.tensors(args, kwargs)
        if tensors is None or not self._suits(tensors):
            return self.model(*args, **kwargs)
        return self.call(*args, **kwargs)

    def _suits(self, tensors: list[torch.Tensor]) -> bool:
        return True


class _ForLayouts(_ForCalls):
    """Code that was made ahead of time reads memory as the example's lay, and does not look."""

    def __init__(self, model: nn.Module, call: Any, inputs: Inputs) -> None:
        super().__init__(model, call, inputs)
        tensors = self._signature.tensors(inputs.args, inputs.kwargs) or []
        self._strides = [tensor.stride() for tensor in tensors]

    def _suits(self, tensors: list[torch.Tensor]) -> bool:
        return all(
            tensor.stride() == stride and tensor.data_ptr() % _ALIGNED == 0
            for tensor, stride in zip(tensors, self._strides, strict=True)
        )


class _Graphed(nn.Module):
    """A CUDA graph of a model, for calls like that it was made of; others go to the model. One call
    at a time, whatever threads and streams they come from: all use the graph's own memory.
    """

    def __init__(self, model: nn.Module, subject: Subject) -> None:
        super().__init__()
        self.model = model
        self._device = subject.device
        self._given = subject.inputs.copy()
        self._signature = signature_of(self._given)
        self._own = self._signature.tensors(self._given.args, self._given.kwargs) or []
        self._turn = threading.Lock()
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.inference_mode(), torch.cuda.stream(stream):
                for _ in range(3):
                    self._given(model)
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.inference_mode(), torch.cuda.graph(self._graph):
                self._result = self._given(model)
            self._stream = torch.cuda.current_stream()  # of the latest call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives, in tensors of the caller's own."""
        tensors = self._signature.tensors(args, kwargs)
        if tensors is None:
            return self.model(*args, **kwargs)
        with self._turn, torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            if stream != self._stream:
                stream.wait_stream(self._stream)
                self._stream = stream
            for own, given in zip(self._own, tensors, strict=True):
                own.copy_(given)
            self._graph.replay()
            return changed(self._result, torch.clone)


def _scripted(model: nn.Module, subject: Subject) -> nn.Module:
    inputs = subject.inputs
    # Torch warns of most such looks, but not of all, and a model may silence its warnings.
    if looks_at_values(model, inputs):
        raise ValueError(_BY_VALUES)
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        traced = torch.jit.trace(  # type: ignore[no-untyped-call]
            model, inputs.args or None, example_kwarg_inputs=dict(inputs.kwargs) or None,
            check_trace=False, strict=False,
        )  # fmt: skip
        script = torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval()))
    if any(issubclass(one.category, _TRACED_ONCE) for one in said):
        _expect_no_decision_by_values(model, inputs)
    return _ForCalls(model, script, inputs)


def _expect_no_decision_by_values(model: nn.Module, inputs: Inputs) -> None:
    """A trace has one way through the model. Where that depends on shapes alone, it is the way of
    all calls that it is asked for; torch.export knows whether it is.
    """
    try:
        with torch.no_grad():
            program = torch.export.export(model, inputs.args, dict(inputs.kwargs), strict=False)
    except TookTooLong:
        raise
    except Exception:
        program = None
    looks = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
    if program is None or any(node.target in looks for node in program.graph.nodes):
        raise ValueError(_BY_VALUES)


def _why_no_script(subject: Subject) -> str | None:
    if not hasattr(torch.jit, "optimize_for_inference"):
        return "this torch has no TorchScript"
    return _why_not_alone(subject)


COMPILE = compiled("compile")
FREEZING = frozen("compile freezing")
MAX_AUTOTUNE = compiled("compile max-autotune", mode="max-autotune-no-cudagraphs")
FREEZING_AUTOTUNE = frozen("compile freezing max-autotune", mode="max-autotune-no-cudagraphs")
AHEAD_OF_TIME = Change("ahead-of-time", "exact", ENGINE, _ahead_of_time, _why_not_ahead)
CUDA_GRAPH = Change("cuda-graph", "exact", ENGINE, _Graphed, _why_no_graph)
CUDA_GRAPHS = _with_cuda_graphs("compile cudagraphs", "reduce-overhead")
MAX_AUTOTUNE_GRAPHS = _with_cuda_graphs("compile max-autotune cudagraphs", "max-autotune")
TORCHSCRIPT = Change("torchscript", "exact", ENGINE, _scripted, _why_no_script)
