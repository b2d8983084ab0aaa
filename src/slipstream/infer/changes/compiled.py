"""torch's own compilers: Inductor while the process runs, or ahead of time, and TorchScript."""

import itertools
import os
import shutil
import tempfile
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from slipstream.infer.change import ENGINE, Change
from slipstream.infer.inputs import Inputs
from slipstream.infer.leaves import changed, tensors_of
from slipstream.infer.subject import Subject

_numbers = itertools.count()


class Called(nn.Module):
    """A model that is called through something made of it; `model` keeps its parameters."""

    def __init__(self, model: nn.Module, call: Any) -> None:
        super().__init__()
        self.model = model
        self.call = call

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


class Frozen(Called):
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

    def apply(model: nn.Module, subject: Subject) -> nn.Module:
        return Frozen(model, torch.compile(function_of(model), **options))

    return Change(name, "exact", ENGINE, apply, _why_not)


def compiled(name: str, **options: Any) -> Change:
    """`torch.compile` with these options."""

    def apply(model: nn.Module, subject: Subject) -> nn.Module:
        return Called(model, torch.compile(function_of(model), **options))

    return Change(name, "exact", ENGINE, apply, _why_not)


class _Copied(Called):
    """A compiled model whose results lie in memory that its next call writes to."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives, in tensors of the caller's own."""
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return changed(self.call(*args, **kwargs), torch.clone)


def _with_cuda_graphs(model: nn.Module, subject: Subject) -> nn.Module:
    return _Copied(model, torch.compile(function_of(model), mode="reduce-overhead"))


def _ahead_of_time(model: nn.Module, subject: Subject) -> nn.Module:
    inputs = subject.inputs
    with torch.no_grad():
        exported = torch.export.export(model, inputs.args, dict(inputs.kwargs), strict=False)
        with tempfile.TemporaryDirectory() as folder:
            package = torch._inductor.aoti_compile_and_package(
                exported,
                package_path=str(Path(folder, "model.pt2")),
                inductor_configs={"freezing": True},
            )
            return _ForShapes(model, torch._inductor.aoti_load_package(package), inputs)


class _ForShapes(Called):
    """What was made for some shapes; others are a matter of the model."""

    def __init__(self, model: nn.Module, call: Any, inputs: Inputs) -> None:
        super().__init__(model, call)
        self._shapes = [_key(tensor) for tensor in inputs.tensors()]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives."""
        if [_key(tensor) for tensor in tensors_of((args, kwargs))] != self._shapes:
            return self.model(*args, **kwargs)
        return self.call(*args, **kwargs)


class _Graphed(nn.Module):
    """A CUDA graph of a model for the shapes that it was made with; others are called as before."""

    def __init__(self, model: nn.Module, subject: Subject) -> None:
        super().__init__()
        self.model = model
        self._given = subject.inputs.copy()
        self._shapes = [_key(t) for t in self._given.tensors()]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(stream):
            for _ in range(3):
                self._given(model)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self._graph):
            self._result = self._given(model)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives, in tensors of the caller's own."""
        tensors = tensors_of((args, kwargs))
        if [_key(t) for t in tensors] != self._shapes:
            return self.model(*args, **kwargs)
        for own, given in zip(self._given.tensors(), tensors, strict=True):
            own.copy_(given)
        self._graph.replay()
        return changed(self._result, torch.clone)


def _key(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, tensor.device


def _scripted(model: nn.Module, subject: Subject) -> nn.Module:
    inputs = subject.inputs
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that it is deprecated, and what tracing cannot see
        traced = torch.jit.trace(  # type: ignore[no-untyped-call]
            model, inputs.args or None, example_kwarg_inputs=dict(inputs.kwargs) or None,
            check_trace=False, strict=False,
        )  # fmt: skip
        return Called(model, torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval())))


def _why_no_script(subject: Subject) -> str | None:
    if not hasattr(torch.jit, "optimize_for_inference"):
        return "this torch has no TorchScript"
    return None


COMPILE = compiled("compile")
FREEZING = frozen("compile freezing")
MAX_AUTOTUNE = compiled("compile max-autotune", mode="max-autotune-no-cudagraphs")
FREEZING_AUTOTUNE = frozen("compile freezing max-autotune", mode="max-autotune-no-cudagraphs")
AHEAD_OF_TIME = Change("ahead-of-time", "exact", ENGINE, _ahead_of_time, _why_not)
CUDA_GRAPH = Change("cuda-graph", "exact", ENGINE, _Graphed, _why_not_cuda)
CUDA_GRAPHS = Change("compile cudagraphs", "exact", ENGINE, _with_cuda_graphs, _why_not_cuda)
TORCHSCRIPT = Change("torchscript", "exact", ENGINE, _scripted, _why_no_script)
