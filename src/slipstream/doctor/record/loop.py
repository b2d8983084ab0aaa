"""Hooks on what a training loop does with a batch: forward, backward, optimizer, and the rest."""

import gc
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from slipstream.doctor.capture import (
    BACKWARD,
    CALL,
    CLIP,
    COPY,
    FORWARD,
    GARBAGE,
    OPTIMIZER,
    SAVE,
    SYNC,
    ZERO_GRAD,
)
from slipstream.doctor.record.machine import cuda_is_in_use
from slipstream.doctor.record.models import ModelFacts
from slipstream.doctor.record.places import users_place

if TYPE_CHECKING:
    from slipstream.doctor.record.session import Session

_SYNCS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "nonzero")


class LoopHooks:
    """Installs the hooks of the loop's own process."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._trace = session.trace
        self._in_forward = False
        self._handles: list[Any] = []
        self._steps: list[Any] = []
        self.optimizers: dict[int, dict[str, Any]] = {}
        self.models = ModelFacts()

    def install(self) -> None:
        """Replace what is hooked; `Session` puts it back."""
        trace, replace = self._trace, self._session.patches.replace
        replace(torch.nn.Module, "__call__", self._wrap_module)
        replace(torch.autograd, "backward", self._wrap_simple(BACKWARD))
        replace(torch.autograd, "grad", self._wrap_simple(BACKWARD))
        replace(Optimizer, "zero_grad", self._wrap_zero_grad)
        replace(torch.nn.Module, "zero_grad", self._wrap_zero_grad)
        replace(torch.nn.utils, "clip_grad_norm_", trace.counted(CLIP, "clip_grad_norm_"))
        replace(torch.nn.utils, "clip_grad_value_", trace.counted(CLIP, "clip_grad_value_"))
        replace(torch, "save", trace.counted(SAVE, "torch.save"))
        replace(gc, "collect", trace.counted(CALL, "gc.collect"))
        replace(torch.cuda, "empty_cache", trace.counted(CALL, "torch.cuda.empty_cache"))
        replace(torch.cuda, "synchronize", trace.counted(SYNC, "torch.cuda.synchronize"))
        replace(torch, "set_num_threads", trace.counted(CALL, "torch.set_num_threads"))
        for name in _SYNCS:
            replace(torch.Tensor, name, self._wrap_sync(name))
        for name in ("to", "cuda"):
            replace(torch.Tensor, name, self._wrap_copy(name))
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        gc.callbacks.append(self._on_garbage)

    def remove(self) -> None:
        """Take away what `Patches` does not know of."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._on_garbage in gc.callbacks:
            gc.callbacks.remove(self._on_garbage)

    def _wrap_simple(self, kind: str) -> Any:
        trace = self._trace

        def wrap(function: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if not trace.is_here:
                    return function(*args, **kwargs)
                with trace.span(kind):
                    return function(*args, **kwargs)

            return call

        return wrap

    def _wrap_module(self, original: Any) -> Any:
        trace = self._trace
        is_compiling = torch.compiler.is_compiling

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._in_forward or not trace.is_here:
                return original(module, *args, **kwargs)
            self._in_forward = True
            try:
                known = self.models.note(module, args)
                facts = [known, module.training, torch.is_grad_enabled()]
                with trace.span(FORWARD, facts):
                    return original(module, *args, **kwargs)
            finally:
                self._in_forward = False

        return call

    def _wrap_zero_grad(self, original: Any) -> Any:
        trace = self._trace

        def zero_grad(thing: Any, set_to_none: bool = True) -> None:
            if not trace.is_here:
                original(thing, set_to_none)
                return
            call = trace.call_here("zero_grad" if set_to_none else "zero_grad(set_to_none=False)")
            with trace.span(ZERO_GRAD, call.id) as span:
                original(thing, set_to_none)
            call.count += 1
            call.wall += span.end - span.start

        return zero_grad

    def _wrap_sync(self, name: str) -> Any:
        trace = self._trace

        def wrap(original: Any) -> Any:
            def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if not trace.is_here or tensor.device.type == "cpu":
                    return original(tensor, *args, **kwargs)
                counted = trace.call_here(f"Tensor.{name}")
                with trace.span(SYNC, counted.id) as span:
                    result = original(tensor, *args, **kwargs)
                counted.count += 1
                counted.wall += span.end - span.start
                return result

            return call

        return wrap

    def _wrap_copy(self, name: str) -> Any:
        trace = self._trace

        def wrap(original: Any) -> Any:
            def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if not trace.is_here or tensor.device.type != "cpu":
                    return original(tensor, *args, **kwargs)
                # On the processor a copy that changes nothing returns the tensor itself.
                if name == "to" and not cuda_is_in_use():
                    return original(tensor, *args, **kwargs)
                counted = trace.call_here(f"Tensor.{name}")
                with trace.span(COPY, counted.id) as span:
                    result = original(tensor, *args, **kwargs)
                counted.count += 1
                counted.wall += span.end - span.start
                facts = counted.facts
                facts["bytes"] = facts.get("bytes", 0) + tensor.nbytes
                if result.device.type != "cpu":
                    self._session.saw_device()
                    is_pinned = tensor.is_pinned()
                    facts["pageable"] = facts.get("pageable", 0) + (not is_pinned)
                    blocks = not kwargs.get("non_blocking", False) and True not in args
                    facts["blocking"] = facts.get("blocking", 0) + blocks
                return result

            return call

        return wrap

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._trace.is_here:
            return
        self._session.before_step()
        if id(optimizer) not in self.optimizers:
            self.optimizers[id(optimizer)] = _describe_optimizer(optimizer)
        span = self._trace.span(OPTIMIZER, id(optimizer))
        span.__enter__()
        self._steps.append(span)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._steps:
            self._steps.pop().__exit__(None, None, None)
            self._session.after_step()

    def _on_garbage(self, phase: str, info: dict[str, int]) -> None:
        trace = self._trace
        if not trace.is_here:
            return
        if phase == "start":
            self._garbage = trace.span(GARBAGE, info["generation"])
            self._garbage.__enter__()
        elif getattr(self, "_garbage", None) is not None:
            self._garbage.__exit__(None, None, None)
            del self._garbage


def _describe_optimizer(optimizer: Any) -> dict[str, Any]:
    group = optimizer.param_groups[0]
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    return {
        "class": type(optimizer).__name__,
        "is_torchs": type(optimizer).__module__.startswith("torch.optim"),
        "where": users_place(3),
        "foreach": group.get("foreach"),
        "fused": group.get("fused"),
        "capturable": group.get("capturable"),
        "parameters": len(parameters),
        "elements": sum(p.numel() for p in parameters),
        "without_grad": sum(p.grad is None for p in parameters),
        "device": parameters[0].device.type if parameters else None,
    }
