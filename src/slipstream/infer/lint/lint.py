"""`lint_model`: what in a model's architecture costs time, measured on this device."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer.inputs import Inputs, inputs_of
from slipstream.infer.keeping import everything_as_before, without_fast_path
from slipstream.infer.lint import parameters
from slipstream.infer.lint.case import Seen
from slipstream.infer.lint.compare import compare
from slipstream.infer.lint.finding import Checked, Report
from slipstream.infer.lint.known import LAYER_RULES, RULES
from slipstream.infer.lint.trace import Trace, trace
from slipstream.infer.lint.where import device_words, input_words, source_of
from slipstream.infer.lint.whole import time_whole
from slipstream.infer.subject import Subject, copied, expect_module, in_evaluation

_MANY_CALLS = 10


def lint_model(
    model: torch.nn.Module, example_inputs: Any, *, seconds: float = 60.0,
    ignore: Sequence[str] = (), tell: Callable[[str], None] | None = None,
) -> Report:  # fmt: skip
    """Find what in the architecture of a model costs time, and measure it against what could stand
    in its place: ShuffleNetV2's four guidelines, odd channels, a bias before a norm, operators too
    small for the device, and parameters that are never trained.

    A call in evaluation without gradients is recorded, on a copy: the model is never changed.
    Layers are measured alone, on random numbers of the shapes that they are given, in turns with
    an alternative of the same FLOPs. It is a finding if that is surely faster and saves 1 % of the
    call. `example_inputs`: a tensor, a tuple of arguments, or a dict of arguments by name.
    `seconds` limits the whole; what was not measured is said. `ignore`: names of rules.

    >>> import torch
    >>> report = lint_model(torch.nn.Linear(8, 8), torch.ones(1, 8), seconds=0.5)
    >>> report.operators, report.model_ms > 0
    (1, True)
    """
    _check(model, seconds, ignore)
    started = time.monotonic()
    until = started + seconds
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    tell = tell or (lambda words: None)
    inputs = inputs_of(example_inputs)
    device = Subject(model, inputs).device
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with everything_as_before(model), _eagerly(), on_device:
        inputs = inputs.copy()
        tell("recording a call")
        made = in_evaluation(copied(model))
        graph = _recorded(made, inputs, until)
        tell("parameters")
        checked = _parameters(model, inputs, ignore, until)
        tell("the model as a whole")
        subject = Subject(made, inputs)
        with torch.no_grad():
            whole = time_whole(subject, graph, until, ignore)
            rules = [rule for rule in LAYER_RULES if rule.name not in ignore]
            seen = Seen(graph, whole.tiny_s)
            compared = compare(rules, seen, whole.model_ms, until, subject.wait(), tell)
    checked = [*compared, *(one for one in whole.shares if one.rule not in ignore), *checked]
    for row in (row for one in checked for row in one.rows if row.where):
        row.source = source_of(model, row.where[0][0])
    gflops = sum(op.flops for op in graph.ops) / 1e9
    return Report(
        type(model).__name__, device_words(subject.device), input_words(inputs), whole.model_ms,
        len(graph.computing), gflops, time.monotonic() - started, checked,
    )  # fmt: skip


def _parameters(
    model: torch.nn.Module, inputs: Inputs, ignore: Sequence[str], until: float
) -> list[Checked]:
    found = []
    if parameters.UNUSED not in ignore:
        found.append(parameters.unused_parameters(model, inputs, until))
    if parameters.FROZEN not in ignore:
        found.append(parameters.frozen_parameters(model))
    return found


def _check(model: Any, seconds: float, ignore: Sequence[str]) -> None:
    expect_module(model)
    if not seconds > 0:
        raise UsageError(f"seconds is {seconds}; expected more than 0.")
    if unknown := [name for name in ignore if name not in RULES]:
        raise UsageError(f"{unknown[0]!r} is no rule. Expected one of {', '.join(RULES)}.")


@contextmanager
def _eagerly() -> Iterator[None]:
    """Parts that were compiled run as they were written: only so their operators are seen."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and loading it takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _recorded(model: torch.nn.Module, inputs: Inputs, until: float) -> Trace:
    started = time.monotonic()
    try:
        with torch.no_grad():
            inputs(model)
    except Exception as error:
        raise UsageError(
            f"{type(model).__name__} cannot be called with {input_words(inputs) or 'no input'}: "
            f"{type(error).__name__}: {_first_line(error)}"
        ) from None
    call_s = time.monotonic() - started
    try:
        with without_fast_path():  # nested tensors cannot be recorded
            graph = trace(model, inputs)
            if time.monotonic() + _MANY_CALLS * call_s < until:
                again = trace(model, inputs)
                if len(again.ops) == len(graph.ops):
                    for op, other in zip(graph.ops, again.ops, strict=True):
                        op.seconds = min(op.seconds, other.seconds)
    except Exception as error:
        raise UsageError(
            f"{type(model).__name__} can be called, but not while its operators are recorded: "
            f"{type(error).__name__}: {_first_line(error)}"
        ) from None
    return graph


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]
