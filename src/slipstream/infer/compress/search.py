"""`compress`: a model with fewer channels, if it is faster in milliseconds and as good."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from slipstream.errors import UsageError
from slipstream.infer.compress.prune import check_torch_pruning, pruned
from slipstream.infer.compress.result import Compressed, CompressedRow, score_of
from slipstream.infer.compress.timed import timed
from slipstream.infer.flops import FORMULAS
from slipstream.infer.gates.contract import contract
from slipstream.infer.gates.metric import FEWEST, Drop, Metric, drop_of, judge, scores_of, too_few
from slipstream.infer.gates.reference import Reference, reference_of
from slipstream.infer.inputs import inputs_of
from slipstream.infer.keeping import everything_as_before, without_fast_path
from slipstream.infer.subject import (
    Subject,
    deep_copy,
    expect_module,
    in_evaluation,
    in_training,
)

_DO = "Name the layers that cannot be narrower in ignored."


def compress(  # noqa: PLR0913 (what to do, how to train, how to judge)
    model: nn.Module, example_inputs: Any, ratio: float, train_fn: Callable[[nn.Module], Any],
    metric: Metric, data: Sequence[Any], *, max_drop: float = 0.01, multiple: int = 8,
    ignored: Sequence[str] = (),
) -> Compressed:  # fmt: skip
    """Take `ratio` of the channels out of a model, train what is left, and compare.

    `train_fn(pruned)` trains it in place; it is a copy, and the model itself stays.
    `metric(model, batch)` gives one score per sample of `data`, higher is better; their mean may
    drop by `max_drop` at most. `data` must not be what `train_fn` trains with. Then both are timed
    in turns, and the pruned one is returned only if it is surely faster: fewer operations are often
    not fewer milliseconds. Widths become multiples of `multiple`. Layers that make the results stay
    as wide as they are, and so do those with names in `ignored`.

    Needs Torch-Pruning. `distill` is a `train_fn` for when the model itself shall be the teacher.

    >>> from slipstream.infer.compress import compress
    >>> compress(nn.Linear(8, 2), torch.ones(1, 8), 1.5, print, print, [])
    Traceback (most recent call last):
    slipstream.errors.UsageError: ratio is 1.5; expected a share of channels between 0 and 1.
    """
    _check(model, ratio, train_fn, multiple, ignored)
    check_torch_pruning()
    inputs = inputs_of(example_inputs)
    data = list(data)  # the same samples, before and after
    before = CompressedRow("the model", "model")
    after = CompressedRow(f"{ratio:.0%} pruned", "failed")
    found = Compressed(model, None, [before, after])
    with everything_as_before(model):
        # A model may change with its calls; this one can learn.
        own = in_evaluation(deep_copy(model))
        subject = Subject(own, inputs)
        reference = reference_of(subject)
        _count(before, own, subject)
        scores = scores_of(own, metric, data)
        before.score = score_of(scores) if scores else None
        made, after.why = _pruned(subject, reference, ratio, multiple, ignored)
        if made is not None and len(scores) < FEWEST:
            _count(after, in_evaluation(made), subject)
            after.state = "rejected"
            after.why = f"{too_few(len(scores))}, so it was not trained"
        elif made is not None:
            train_fn(made)
            found.pruned = in_evaluation(made)
            _count(after, made, subject)
            if why := contract(made, reference):
                after.state, after.why = "rejected", f"behind train_fn it {why}"
                return found
            after_scores = scores_of(made, metric, data)
            drop = drop_of(scores, after_scores)
            after.score = score_of(after_scores)
            _compare(found, subject, reference, drop, max_drop)
    return found


def _pruned(
    subject: Subject, reference: Reference, ratio: float, multiple: int, ignored: Sequence[str]
) -> tuple[nn.Module | None, str]:
    """The pruned model, or why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Torch-Pruning, about parameters outside of layers
            made = pruned(subject.model, subject.inputs, ratio, multiple, ignored)
    except Exception as error:
        return None, f"cannot be pruned: {type(error).__name__}: {error}. {_DO}"
    if _parameters(made) == _parameters(subject.model):
        return None, (
            f"no layer has channels to give: {multiple} or more of them have to be left, and what "
            "makes the results stays"
        )
    why = contract(in_evaluation(made), reference)
    if why is not None:
        return None, f"{why}. {_DO}"
    return in_training(made), ""


def _compare(
    found: Compressed, subject: Subject, reference: Reference, drop: Drop, max_drop: float
) -> None:
    before, after = found.rows
    times = timed(subject.model, found.pruned, reference, subject.wait())
    before.ms, before.speed = times.before_ms, times.noise
    after.ms, after.speed = times.after_ms, times.speed
    after.drop = str(drop)
    why = judge(drop, max_drop)
    if why is not None:
        after.state, after.why = "rejected", why
    elif times.is_surely_faster:
        assert found.pruned is not None
        after.state, after.why, found.model = "won", "surely faster, and as good", found.pruned
    else:
        after.state = "slower"
        after.why = (
            f"not shown to be faster: {times.speed}, more than {times.least:.2f} x is needed"
        )


def _count(row: CompressedRow, model: nn.Module, subject: Subject) -> None:
    row.parameters = _parameters(model)
    counter = FlopCounterMode(display=False, custom_mapping=FORMULAS)
    with torch.no_grad(), without_fast_path(), counter:
        subject.inputs.copy()(model)
    row.macs = counter.get_total_flops() // 2


def _parameters(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def _check(model: Any, ratio: float, train_fn: Any, multiple: int, ignored: Sequence[str]) -> None:
    expect_module(model)
    if not 0 < ratio < 1:
        raise UsageError(f"ratio is {ratio}; expected a share of channels between 0 and 1.")
    if multiple < 1:
        raise UsageError(f"multiple is {multiple}; expected 1 or more.")
    if not callable(train_fn):
        raise UsageError(f"train_fn is a {type(train_fn).__name__}; expected a function.")
    names = {name for name, _ in model.named_modules()}
    for name in ignored:
        if name not in names:
            raise UsageError(f"ignored names {name!r}, which is no part of the model.")
