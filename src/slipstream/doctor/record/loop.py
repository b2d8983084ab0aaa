"""Hooks on what a training loop does with a batch: forward, backward, optimizer, and the rest."""

import gc
import sys
import time
import weakref
from collections import deque
from collections.abc import MutableMapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.weak import WeakIdKeyDictionary

from slipstream.by_hand import StepsByHand
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
    Call,
)
from slipstream.doctor.record.batches import bytes_of, is_pinned
from slipstream.doctor.record.device import DeviceHooks
from slipstream.doctor.record.evaluated import Evaluated, Watched
from slipstream.doctor.record.further import FurtherHooks
from slipstream.doctor.record.machine import cuda_is_in_use
from slipstream.doctor.record.models import ModelFacts
from slipstream.doctor.record.places import called_by_user, users_frame, users_place
from slipstream.doctor.record.statements import accumulation_of
from slipstream.doctor.record.writers import WriterHooks
from slipstream.nesterov import adds_to_gradients

if TYPE_CHECKING:
    from slipstream.doctor.record.session import Session

_MOST_OPTIMIZERS = 8
_MOST_HELD = 4
_STEPS_WITH_IMPORTS = 8  # of the beginning, in which modules are still imported
_GRAPHS_LOOKED_AT = 10
_GRAD = -1  # stands for an optimizer, where gradients are asked for
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
        self.held_optimizers: dict[int, Any] = {}
        self.models = ModelFacts()
        self._writers = WriterHooks(session.trace, session.patches)
        self._device = DeviceHooks(session.trace, session.patches)
        self._further = FurtherHooks(session)
        self._step_count = 0
        self._made_at: MutableMapping[Any, str | None] = WeakIdKeyDictionary()
        self._graphs: deque[weakref.ref[Any]] = deque(maxlen=200)
        self._backwards = 0
        self.by_hand = StepsByHand()
        self._evaluated = Evaluated()

    @property
    def has_workers(self) -> bool:
        """Whether loaders have started any."""
        return self._session.has_workers

    def install(self) -> None:
        """Replace what is hooked; `Session` puts it back."""
        trace, replace = self._trace, self._session.patches.replace
        replace(torch.nn.Module, "__call__", self._wrap_module)
        replace(torch.autograd, "backward", self._wrap_backward)
        replace(torch.autograd, "grad", self._wrap_grad)
        replace(Optimizer, "zero_grad", self._wrap_zero_grad)
        replace(torch.nn.Module, "zero_grad", self._wrap_zero_grad)
        replace(torch.nn.utils, "clip_grad_norm_", trace.counted(CLIP, "clip_grad_norm_"))
        replace(torch.nn.utils, "clip_grad_value_", trace.counted(CLIP, "clip_grad_value_"))
        replace(torch, "save", trace.counted(SAVE, "torch.save"))
        replace(gc, "collect", trace.counted(CALL, "gc.collect"))
        replace(torch.cuda, "empty_cache", trace.counted(CALL, "torch.cuda.empty_cache"))
        replace(torch.cuda, "synchronize", trace.counted(SYNC, "torch.cuda.synchronize"))
        replace(torch, "set_num_threads", trace.counted(CALL, "torch.set_num_threads"))
        replace(torch, "compile", trace.counted(CALL, "torch.compile"))
        replace(torch.nn.Module, "to", trace.counted(CALL, "Module.to"))
        replace(torch.nn.Module, "load_state_dict", trace.counted(CALL, "load_state_dict"))
        replace(Optimizer, "__init__", self._wrap_make_optimizer)
        for name in ("detect_anomaly", "set_detect_anomaly"):
            replace(getattr(torch.autograd, name), "__init__", trace.counted(CALL, "anomaly"))
        for name in ("scatter", "replicate", "gather"):
            replace(torch.nn.DataParallel, name, trace.counted(CALL, f"DataParallel.{name}"))
        replace(torch.utils.checkpoint._CheckpointFrame, "__init__", self._wrap_frame)
        self._writers.install()
        self._further.install()
        for name in _SYNCS:
            replace(torch.Tensor, name, self._wrap_sync(name))
        for name in ("to", "cuda"):
            replace(torch.Tensor, name, self._wrap_copy(name))
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        gc.callbacks.append(self._on_garbage)

    @property
    def allocator(self) -> dict[str, int]:
        """What the device's allocator did since the first steps."""
        return self._device.allocator()

    @property
    def calls(self) -> list[Call]:
        """All that were counted."""
        return self._trace.calls

    def replay(self) -> list[dict[str, Any]]:
        """What other ways to do a step would gain; lets go of the models. After `remove`."""
        from slipstream.doctor.record.replay import replay_all

        for call in self.calls:
            if call.what == "backward" and call.where and call.facts.get("graphs_alive"):
                call.facts["kept_at"] = accumulation_of(call.where)
        try:
            self.models.after_backward()
            pressed = self._further.pressure()  # before replays need memory of their own
            return pressed + replay_all(self) + self._further.replay(self)
        finally:
            self.models.release()
            self.held_optimizers.clear()

    def remove(self) -> None:
        """Take away what `Patches` does not know of."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._on_garbage in gc.callbacks:
            gc.callbacks.remove(self._on_garbage)

    def _wrap_backward(self, original: Any) -> Any:
        trace = self._trace

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not trace.is_here:
                return original(tensors, *args, **kwargs)
            call = trace.call_here("backward")
            self._watch_graph(tensors, call)
            self._evaluated.before_backward()
            self._further.retained.before_backward(tensors, call, *_keeps(*args, **kwargs))
            with self.by_hand.backward() as is_by_hand:
                is_step = is_by_hand and not self._has_optimizer
                if is_step:
                    self._begin_step()
                with trace.span(BACKWARD, call.id) as span:
                    result = original(tensors, *args, **kwargs)
            call.count += 1
            call.wall += span.end - span.start
            if is_step:
                self.models.after_backward()
                self._session.after_step(call.id)
            return result

        return backward

    def _wrap_grad(self, original: Any) -> Any:
        trace = self._trace

        def grad(*args: Any, **kwargs: Any) -> Any:
            if not trace.is_here:
                return original(*args, **kwargs)
            self._evaluated.before_backward()
            if self._has_optimizer or not called_by_user():
                with trace.span(BACKWARD):
                    return original(*args, **kwargs)
            with self.by_hand.grad() as is_step:
                if is_step:
                    self._begin_step()
                with trace.span(BACKWARD):
                    result = original(*args, **kwargs)
            if is_step:
                self._session.after_step(_GRAD)
            return result

        return grad

    @property
    def _has_optimizer(self) -> bool:
        return bool(self._made_at or self.optimizers)

    def _watch_graph(self, tensors: Any, call: Any) -> None:
        """Note whether the graphs of earlier backward passes still live."""
        root = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        node = getattr(root, "grad_fn", None)
        if node is None:
            return
        self._backwards += 1
        if self._backwards % _GRAPHS_LOOKED_AT == 0:
            call.facts["graphs"] = len(self._graphs)
            call.facts["graphs_alive"] = sum(graph() is not None for graph in self._graphs)
        watched = Watched()
        with suppress(AttributeError, TypeError):
            node.metadata["slipstream"] = watched
            self._graphs.append(weakref.ref(watched))

    @property
    def is_before_first_step(self) -> bool:
        """Whether gradients are summed up for an optimizer that has not made a step yet."""
        return bool(self._made_at and self._backwards and not self._step_count)

    def _wrap_make_optimizer(self, original: Any) -> Any:
        counted = self._trace.counted(CALL, "Optimizer()")(original)

        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            counted(optimizer, *args, **kwargs)
            if self._trace.is_here:
                self._made_at[optimizer] = users_place()

        return init

    def _wrap_frame(self, original: Any) -> Any:
        """Parts of a model whose activations are computed again in the backward pass."""
        trace = self._trace

        def init(frame: Any, recompute: Any, *args: Any, **kwargs: Any) -> None:
            if torch.compiler.is_compiling() or not trace.is_here:
                original(frame, recompute, *args, **kwargs)
                return
            call = trace.call_here("checkpoint")

            def timed(*given: Any) -> Any:
                start = time.perf_counter_ns()
                try:
                    return recompute(*given)
                finally:
                    # It ends early by an exception of torch's own.
                    call.count += 1
                    call.wall += time.perf_counter_ns() - start

            original(frame, timed, *args, **kwargs)

        return init

    def _wrap_module(self, original: Any) -> Any:
        hooks, trace = self, self._trace
        is_compiling = torch.compiler.is_compiling

        # Torch's profiler looks for a module by the name `self` in the frame of this function.
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if hooks._in_forward or is_compiling() or not trace.is_here:
                return original(self, *args, **kwargs)
            hooks._in_forward = True
            try:
                facts, inside = hooks._look_at(self, args, kwargs)
                with trace.span(FORWARD, facts), inside or nullcontext():
                    result = original(self, *args, **kwargs)
                if facts is not None and facts[1:3] == [False, True]:
                    hooks._evaluated.watch(facts, result)
                return result
            finally:
                hooks._in_forward = False

        return call

    def _look_at(self, module: Any, args: Any, kwargs: Any) -> tuple[list[Any] | None, Any]:
        """What is to be known of a call, and a context for it."""
        if self._session.is_light:
            return None, None
        try:
            known = self.models.note(module, args, kwargs)
            inside = self.models.look_inside(known, module)
            if inside is not None:
                inside = self._further.looking(known, module, inside)
        except Exception:  # a module that does not say what it is made of, or not yet
            return None, None
        return [known, module.training, torch.is_grad_enabled()], inside

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
                if tensor.is_cpu or not trace.is_here:
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
                if not tensor.is_cpu or not trace.is_here:
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
                facts["bytes"] = facts.get("bytes", 0) + bytes_of(tensor)
                if result.device.type != "cpu":
                    self._device.install()
                    self._session.saw_device()
                    facts["pageable"] = facts.get("pageable", 0) + (not is_pinned(tensor))
                    blocks = not kwargs.get("non_blocking", False) and True not in args
                    facts["blocking"] = facts.get("blocking", 0) + blocks
                return result

            return call

        return wrap

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._trace.is_here:
            self._session.threads.meet(steps=True)
            if not self._trace.is_here:
                return
        self._begin_step()
        self.models.after_backward()
        if id(optimizer) not in self.optimizers and len(self.optimizers) < _MOST_OPTIMIZERS:
            facts = _describe_optimizer(optimizer)
            facts["made_at"] = self._made_at.get(optimizer)
            self.optimizers[id(optimizer)] = facts
            self.held_optimizers[id(optimizer)] = optimizer
            while len(self.held_optimizers) > _MOST_HELD:
                del self.held_optimizers[next(iter(self.held_optimizers))]
        span = self._trace.span(OPTIMIZER, id(optimizer))
        span.__enter__()
        self._steps.append(span)

    def _begin_step(self) -> None:
        self._session.before_step()
        self._further.before_step()
        self._step_count += 1
        if self._trace.loop_code is None:
            frame = users_frame(sys._getframe(1))
            self._trace.loop_code = None if frame is None else frame.f_code
        if self._step_count <= _STEPS_WITH_IMPORTS:
            self._writers.install()
            self._device.note_allocator()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._steps and self._trace.is_loops_thread:
            self._steps.pop().__exit__(None, None, None)
            self._session.after_step(id(optimizer))

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


def _keeps(
    gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, **_: Any
) -> tuple[bool, bool]:
    return bool(retain_graph), create_graph


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
        "types": sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
        "adds_to_gradients": any(map(adds_to_gradients, optimizer.param_groups)),
    }
