"""What a model is called with while it does its task: data to calibrate with."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from slipstream.infer.gates.metric import Metric
from slipstream.infer.inputs import Inputs

_MOST_CALLS = 64


def record_calls(model: torch.nn.Module, metric: Metric, batches: Sequence[Any]) -> list[Inputs]:
    """Inputs of the first calls of the model while `metric(model, batch)` runs, in order. They are
    copies: neither the metric nor the model changes them afterwards. How a batch becomes the
    model's arguments is the metric's own matter, and so is whether it calls the model at all: one
    that goes round `model(...)`, by a method of it, records nothing.

    >>> def metric(model, batch):
    ...     return model(batch["x"] / 2)[:, 0]
    >>> calls = record_calls(torch.nn.Identity(), metric, [{"x": torch.ones(1, 2)}])
    >>> calls[0].args
    (tensor([[0.5000, 0.5000]]),)
    """
    calls: list[Inputs] = []

    def record(part: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if len(calls) < _MOST_CALLS:
            calls.append(Inputs(args, dict(kwargs)).copy())

    hook = model.register_forward_pre_hook(record, with_kwargs=True)
    try:
        with torch.no_grad():
            for batch in batches:
                if len(calls) < _MOST_CALLS:
                    metric(model, batch)
    finally:
        hook.remove()
    return calls
