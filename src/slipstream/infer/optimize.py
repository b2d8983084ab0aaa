"""`optimize_model`: the fastest variant of a model that gives the same answers."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer import known
from slipstream.infer.calibration import record_calls
from slipstream.infer.change import KINDS, Kind
from slipstream.infer.changes.around import thread_counts, threads
from slipstream.infer.gates.metric import Metric, scores_of
from slipstream.infer.gates.numeric import is_repeatable
from slipstream.infer.gates.reference import reference_of
from slipstream.infer.inputs import inputs_of
from slipstream.infer.keeping import everything_as_before
from slipstream.infer.optimized import INFERENCE_MODE, Optimized
from slipstream.infer.search import Search, Task
from slipstream.infer.subject import Subject, copied, expect_module, in_evaluation
from slipstream.rng import rng_as_before


def optimize_model(  # noqa: PLR0913  one flat option for each thing that a search can be told
    model: torch.nn.Module, example_inputs: Any, *, accuracy: Kind = "exact",
    metric: Metric | None = None, data: Iterable[Any] | None = None, max_drop: float = 0.01,
    also: Sequence[Any] = (), without: Sequence[str] = (), budget_s: float = 180.0,
) -> Optimized:  # fmt: skip
    """Search for the fastest variant of a model in evaluation that gives the same answers.

    Variants change layout, fold batch norms, compile, and compute with fewer bits. Each has to
    give results of the same form, with an error against double precision that is about that of
    the model itself; only then its speed counts, and it is measured in turns with the model. The
    model as it is wins unless another is surely faster. It is never changed: variants are copies.

    `example_inputs`: a tensor, a tuple of arguments, or a dict of arguments by name. `also`: inputs
    of other shapes that have to work, such as a last batch. `accuracy`: "exact" admits the same
    mathematics, "mixed" also bf16, fp16 and TF32, "lossy" also int8, which needs `metric` and
    `data`: `metric(model, batch)` gives one score per sample, higher is better, whose mean may drop
    by `max_drop` at most. A third of `data` calibrates, the rest judges. `without`: changes
    to leave out, by their names in the table. What is tried is told to the log `slipstream.infer`.

    >>> import slipstream, torch
    >>> found = slipstream.optimize_model(torch.nn.Linear(4, 2), torch.ones(1, 4), budget_s=0)
    >>> found.model(torch.ones(1, 4)).shape
    torch.Size([1, 2])
    """
    with rng_as_before():
        data = None if data is None else list(data)  # a loader draws
    _check(model, accuracy, metric, data, budget_s)
    _check_without(without)
    until = time.monotonic() + budget_s
    with everything_as_before(model):
        own = in_evaluation(_copy_of(model))  # a model may do more than switch, as merge weights
        batches = data or []
        if metric is not None:
            _try_metric(metric, own, batches[0])
        third = len(batches) // 3
        calls = record_calls(own, metric, batches[:third]) if metric is not None else []
        subject = Subject(own, inputs_of(example_inputs), tuple(calls))
        others = tuple(inputs_of(each) for each in also)
        reference = reference_of(subject, others)
        if not is_repeatable(reference.answers[0], own):
            raise UsageError(
                f"{type(model).__name__} in evaluation gives other results from call to call, with "
                "the same random numbers: nothing can be compared with it."
            )
        task = Task(metric, batches[third:], max_drop) if metric is not None else None
        search = Search(subject, reference, until, accuracy, task, frozenset(without), budget_s)
        variant, found = search.run()
    calibration = subject.calibration if variant.kind == "lossy" else ()
    subject = replace(subject, model=model, calibration=calibration)
    return Optimized(
        model if found is None else found, variant, list(search.rows.values()), subject, others
    )


def _try_metric(metric: Metric, model: torch.nn.Module, batch: Any) -> None:
    try:
        scores_of(model, metric, [batch])
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"metric failed with the model itself and the first batch: {type(error).__name__}: "
            f"{error}. Expected one score per sample from metric(model, batch)."
        ) from error


def _copy_of(model: torch.nn.Module) -> torch.nn.Module:
    """What is asked and timed in its place, as a call may change a model. One that cannot be copied
    has no variants either, and is asked itself.
    """
    try:
        return copied(model)
    except UsageError:
        return model


def _check(model: Any, accuracy: Any, metric: Any, data: Any, budget_s: Any) -> None:
    expect_module(model)
    if accuracy not in KINDS:
        raise UsageError(
            f"accuracy is {accuracy!r}; expected one of {', '.join(map(repr, KINDS))}."
        )
    if (metric is None) != (data is None):
        raise UsageError("metric and data belong together: give both, or none.")
    if accuracy == "lossy" and metric is None:
        raise UsageError(
            'accuracy="lossy" needs metric and data: only the task can tell whether coarser '
            "numbers do. Give metric=lambda model, batch: … with one score per sample."
        )
    if metric is not None and not callable(metric):
        raise UsageError(
            f"metric is a {type(metric).__name__}; expected a function of a model and a batch."
        )
    if data is not None and not len(data):
        raise UsageError("data has no batches; expected some, of which a third calibrates.")
    if not isinstance(budget_s, int | float) or not budget_s >= 0:
        raise UsageError(f"budget_s is {budget_s}; expected seconds, 0 or more.")


def _check_without(without: Any) -> None:
    names = [*known.all_changes(), *(threads(count).name for count in thread_counts())]
    names.append(INFERENCE_MODE)
    if isinstance(without, str) or not set(without) <= set(names):
        raise UsageError(f"without is {without!r}; expected a list of {', '.join(names)}.")
