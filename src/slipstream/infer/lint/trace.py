"""The graph of one call, recorded while it happens: which operators ran in which module, on what,
and whose results they took.

A real call is recorded, not a program that stands for it: any model that can be called has a graph,
whatever Python it runs between its layers, and the operators are those that this device is given.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from slipstream.infer.flops import FORMULAS
from slipstream.infer.inputs import Inputs
from slipstream.infer.leaves import tensors_of
from slipstream.infer.lint.layer import Layer, convolution_layer, linear_layer
from slipstream.infer.lint.replay import Replay

Kind = Literal["input", "output", "layer", "norm", "element-wise", "other"]

_NORMS = {
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm",
    "_native_batch_norm_legit_no_training", "_batch_norm_with_update", "_batch_norm_no_update",
    "miopen_batch_norm",
}  # fmt: skip
_COPIES = {"copy", "clone", "_to_copy", "cat", "stack", "contiguous"}
_VIEWS = {"_unsafe_view", "_reshape_alias", "detach", "alias", "lift_fresh"}
_PRODUCTS = {"addmm": 1, "mm": 0, "bmm": 0, "linear": 0}  # where the rows stand
_PARAMETER = -1
_FLOPS = {**flop_registry, **FORMULAS}


@dataclass(frozen=True)
class Source:
    """Whose result it is, and how much of it."""

    index: int
    numel: int


@dataclass
class Op:
    """One operator that ran. `sources` are its inputs without parameters; views are looked
    through. `numel` is that of its first result, `seconds` are those of one recorded run,
    `from_input` means that nothing but element-wise operators came between. `dims` are those of
    its first input.
    """

    name: str
    kind: Kind
    module: str
    sources: tuple[Source, ...] = ()
    numel: int = 0
    layer: Layer | None = None
    replay: Replay | None = None
    seconds: float = 0.0
    flops: int = 0
    from_input: bool = False
    dims: int = 0


@dataclass
class Trace:
    """Operators in the order they ran. `views` are counted, not listed: they compute nothing."""

    ops: list[Op] = field(default_factory=list)
    views: int = 0
    module_calls: int = 0

    def consumers(self) -> list[list[int]]:
        """Of each operator's result, by index, in order."""
        found: list[list[int]] = [[] for _ in self.ops]
        for index, op in enumerate(self.ops):
            for source in dict.fromkeys(source.index for source in op.sources):
                found[source].append(index)
        return found

    @property
    def computing(self) -> list[Op]:
        """Those that are operators."""
        return [op for op in self.ops if op.kind not in ("input", "output")]


def trace(model: torch.nn.Module, inputs: Inputs) -> Trace:
    """Record one call of a model in evaluation, without gradients. Hooks are put on the model and
    taken off again.
    """
    recorder = _Recorder(model, inputs)
    handles: list[Any] = []
    try:
        for name, part in model.named_modules():
            handles += _named_hooks(part, name, recorder)
        with torch.no_grad(), recorder:
            result = inputs(model)
    finally:
        for handle in handles:
            handle.remove()
    recorder.end(tensors_of(result), own_s=_recording_s(inputs))
    return recorder.trace


def _recording_s(inputs: Inputs) -> float:
    """What an operator takes that computes nothing."""
    device = next((tensor.device for tensor in inputs.tensors()), torch.device("cpu"))
    tiny = torch.ones(1, device=device)
    found = []
    with torch.no_grad():
        for _ in range(10):
            stop = _clock([tiny])
            torch.ops.aten.neg.default(tiny)
            found.append(stop()())
    return min(found)


def _named_hooks(part: torch.nn.Module, name: str, recorder: "_Recorder") -> list[Any]:
    if isinstance(part, torch.jit.ScriptModule):
        return []  # takes no hooks; what is in it counts as its parent's

    def enter(*_: Any) -> None:
        recorder.modules.append(name)
        recorder.trace.module_calls += 1

    def leave(*_: Any) -> None:
        recorder.modules.pop()

    return [
        part.register_forward_pre_hook(enter, prepend=True),
        part.register_forward_hook(leave, always_call=True),
    ]


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operator just before the device does."""

    def __init__(self, model: torch.nn.Module, inputs: Inputs) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace()
        self.modules: list[str] = []
        self.origins: Any = WeakTensorKeyDictionary()
        self.clocks: list[tuple[Op, Callable[[], float]]] = []
        for tensor in (*model.parameters(), *model.buffers()):
            self.origins[tensor] = _PARAMETER
        for tensor in inputs.tensors():
            self.origins[tensor] = len(self.trace.ops)
            self.trace.ops.append(Op("input", "input", "", numel=tensor.numel()))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tensors_of((args, kwargs))
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        if _is_view(func, name):
            made = func(*args, **kwargs)
            self.trace.views += 1
            for tensor in tensors_of(made):
                if given and given[0] in self.origins:
                    self.origins[tensor] = self.origins[given[0]]
            return made
        # Looked at before it runs: in place, a result takes the place of what it was made from.
        op = self._op(func, name, given, args, kwargs)
        elapsed = _clock(given)
        made = func(*args, **kwargs)
        self.clocks.append((op, elapsed()))
        results = tensors_of(made)
        op.numel = results[0].numel() if results else 0
        if all(tensor.layout is torch.strided for tensor in given) and (
            count := _FLOPS.get(func._overloadpacket)
        ):
            op.flops = int(count(*args, **kwargs, out_val=made))
        for tensor in results:
            self.origins[tensor] = len(self.trace.ops)
        self.trace.ops.append(op)
        return made

    def end(self, results: list[torch.Tensor], own_s: float) -> None:
        """Tell who made the results, and take from all times what starting an operator takes."""
        self.trace.ops.append(Op("output", "output", "", self._sources(results)))
        for op, seconds in self.clocks:
            op.seconds = max(0.0, seconds() - own_s)

    def _op(self, func: Any, name: str, given: list[torch.Tensor], args: Any, kwargs: Any) -> Op:
        op = Op(name, "other", self.modules[-1] if self.modules else "", self._sources(given))
        op.dims = given[0].dim() if given else 0
        if name == "convolution":
            op.kind, op.layer = "layer", convolution_layer(args)
        elif name in _PRODUCTS and (layer := self._linear(name, args)):
            op.kind, op.layer = "layer", layer
        elif name in _NORMS:
            op.kind = "norm"
        elif torch.Tag.pointwise in func.tags or name in _COPIES:
            op.kind, op.replay = "element-wise", Replay.of(func, args, kwargs)
        sources = [self.trace.ops[source.index] for source in op.sources]
        op.from_input = any(
            source.kind == "input" or (source.kind == "element-wise" and source.from_input)
            for source in sources
        )
        return op

    def _linear(self, name: str, args: Any) -> Layer | None:
        """A product with a matrix; one of many matrices with many others is attention's."""
        rows, weight = args[_PRODUCTS[name]], args[_PRODUCTS[name] + 1]
        if not rows.numel() or any(one.layout is not torch.strided for one in (rows, weight)):
            return None
        if name == "bmm" and (self.origins.get(weight) != _PARAMETER or weight.stride(0) != 0):
            return None
        has_bias = name == "addmm" or (len(args) > 2 and args[2] is not None)
        return linear_layer(rows, weight.shape[0 if name == "linear" else -1], has_bias)

    def _sources(self, given: Sequence[torch.Tensor]) -> tuple[Source, ...]:
        found = [(self.origins.get(tensor, _PARAMETER), tensor.numel()) for tensor in given]
        return tuple(Source(index, numel) for index, numel in found if index != _PARAMETER)


def _is_view(func: Any, name: str) -> bool:
    returned = [each.alias_info for each in func._schema.returns]
    return name in _VIEWS or any(each is not None and not each.is_write for each in returned)


def _clock(given: list[torch.Tensor]) -> Callable[[], Callable[[], float]]:
    """Starts now; the first call stops it, the second gives seconds."""
    if given and given[0].is_cuda:
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()

        def stop_event() -> Callable[[], float]:
            end.record()
            return elapsed

        def elapsed() -> float:
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3

        return stop_event
    started = time.perf_counter()

    def stop() -> Callable[[], float]:
        taken = time.perf_counter() - started
        return lambda: taken

    return stop
