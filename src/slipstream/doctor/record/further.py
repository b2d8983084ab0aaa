"""Further hooks of the loop: what a step does for nothing, and what it shares the machine with."""

import copy
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from slipstream.doctor.capture import CALL
from slipstream.doctor.record.models import mode_name
from slipstream.doctor.record.pressure import Pressure
from slipstream.doctor.record.products import Products, watching_products
from slipstream.doctor.record.profilers import Profilers
from slipstream.doctor.record.ranks import exchange
from slipstream.doctor.record.replay_model import can_be_copied, training_pass
from slipstream.doctor.record.replay_products import replay_products
from slipstream.doctor.record.retained import RetainedGraphs
from slipstream.doctor.record.stopwatch import Stopwatch, Work, undisturbed

if TYPE_CHECKING:
    from slipstream.doctor.record.loop import LoopHooks
    from slipstream.doctor.record.session import Session

_SECONDS = 3.0
_FIRST_STEPS = 4
_STEPS_BEFORE_TIDYING = 1  # the first one is always left out of what a step takes
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_collect_garbage = gc.collect  # that of the script is watched
SEARCH = "DistributedDataParallel: unused parameters"


class FurtherHooks:
    """Installed with those of the loop."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._trace = session.trace
        self._profilers = Profilers(session.trace, session.patches)
        self._pressure = Pressure()
        self._products: dict[int, Products] = {}
        self._steps = 0
        self._is_in_group = False
        self.retained = RetainedGraphs()

    def install(self) -> None:
        """Replace what is hooked; `Session` puts it back."""
        self._profilers.install()
        replace = self._session.patches.replace
        replace(torch.autograd, "grad", self._wrap_grad)
        if torch.distributed.is_available():
            from torch.nn.parallel import DistributedDataParallel

            replace(DistributedDataParallel, "_post_forward", self._wrap_post_forward)

    def before_step(self) -> None:
        """Of the optimizer."""
        self._steps += 1
        if not self._is_in_group and torch.distributed.is_available():
            self._is_in_group = torch.distributed.is_initialized()
        self._profilers.before_step()
        if self._steps == _STEPS_BEFORE_TIDYING and not self._session.is_light:
            self._tidy()
        if self._steps == _FIRST_STEPS:
            self._pressure.begin()

    def _tidy(self) -> None:
        """Our modules and objects would make a full collection due in the middle of the steps."""
        self._trace.is_on = False
        _collect_garbage()
        self._trace.is_on = True

    @contextmanager
    def looking(self, number: int, module: Any, inside: Any) -> Iterator[None]:
        """Around the one call of a model that is looked into."""
        plain = all(type(parameter) in _PLAIN for parameter in module.parameters())
        with inside, watching_products() if plain else nullcontext() as seen:
            yield
        if seen is not None:
            self._products[number] = seen

    def pressure(self) -> list[dict[str, Any]]:
        """What the machine was short of until now."""
        return self._pressure.facts()

    def replay(self, hooks: "LoopHooks") -> list[dict[str, Any]]:
        """What was seen, and what it would gain to leave it out. After the other replays."""
        found: list[dict[str, Any]] = []
        try:
            spans, loaders = self._trace.spans, self._session.loaders
            ranks = exchange(spans, loaders, self._session.clock) if self._is_in_group else []
        except Exception as error:
            found.append({"name": "failed", "error": type(error).__name__})
            ranks = []
        if ranks:
            found.append({"name": "ranks", "ranks": ranks})
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return found
        watch = Stopwatch(_SECONDS)
        with undisturbed():
            for number in list(hooks.models.insides):
                try:
                    found += self._replay_model(hooks, number, watch)
                except Exception as error:  # a model that cannot be copied, or run twice
                    found.append({"name": "failed", "error": type(error).__name__})
        self._products.clear()
        return found

    def _replay_model(
        self, hooks: "LoopHooks", number: int, watch: Stopwatch
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        work = _pass_of(hooks, number)
        if work is not None and self._profilers.steps_on:
            found += [{**e, "model": number} for e in self._profilers.replay(work, watch)]
            self._profilers.steps_on = {}
        seen = self._products.get(number)
        if seen is not None:
            found += replay_products(seen, number, watch)
        return found + _without_bias(hooks, number, watch)

    def _wrap_grad(self, original: Any) -> Any:
        def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self._trace.is_here:
                self.retained.before_use(outputs)
            return original(outputs, *args, **kwargs)

        return grad

    def _wrap_post_forward(self, original: Any) -> Any:
        trace = self._trace

        def post_forward(model: Any, output: Any) -> Any:
            searches = model.find_unused_parameters and not model.static_graph
            if not searches or not trace.is_here or torch.compiler.is_compiling():
                return original(model, output)
            call = trace.call_here(SEARCH)
            with trace.span(CALL, call.id):
                start = time.perf_counter_ns()
                result = original(model, output)
            call.count += 1
            call.wall += time.perf_counter_ns() - start
            # Of the passes before: in the first nothing is known yet.
            unused = model._get_ddp_logging_data().get("unused_parameter_size", 0)
            call.facts["unused_bytes"] = max(call.facts.get("unused_bytes", 0), unused)
            return result

        return post_forward


def _pass_of(hooks: "LoopHooks", number: int) -> Work | None:
    """A pass of a copy of the model, as it was called."""
    module, facts = hooks.models.module(number), hooks.models.found[number]
    given = hooks.models.given.get((number, mode_name(True, True)))
    if module is None or given is None or not can_be_copied(facts, module):
        return None
    return training_pass(copy.deepcopy(module).train(), given)


def _without_bias(hooks: "LoopHooks", number: int, watch: Stopwatch) -> list[dict[str, Any]]:
    """Biases of convolutions whose result goes to a batch norm alone, as far as was seen."""
    inside, module = hooks.models.insides[number], hooks.models.module(number)
    given = hooks.models.given.get((number, mode_name(True, True)))
    if module is None or given is None or not can_be_copied(hooks.models.found[number], module):
        return []
    biased = [
        conv
        for conv, norm in inside.folds
        if module.get_submodule(conv).bias is not None
        and module.get_submodule(norm).training
        and module.get_submodule(conv).bias.requires_grad
    ]
    if not biased or not hooks.models.found[number].get("with_gradient"):
        return []
    plain = copy.deepcopy(module).train()
    for conv in biased:
        plain.get_submodule(conv).bias = None
    now = training_pass(copy.deepcopy(module).train(), given)
    times = watch.compare(now, training_pass(plain, given), 1.0)
    if times is None:
        return []
    layer = inside.called.get(biased[0])
    return [
        {
            "name": "without-bias", "model": number, "layers": len(biased), "first": biased[0],
            "where": None if layer is None else layer.where,
            "now_ms": times[0], "then_ms": times[1],
        }
    ]  # fmt: skip
