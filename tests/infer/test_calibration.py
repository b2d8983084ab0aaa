"""Data to calibrate with is what the model is called with while its task is measured."""

from typing import Any

import pytest
import torch
from torch import nn

from slipstream.infer.calibration import record_calls


class Twice(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        return x if scale is None else x * scale


def test_what_the_metric_makes_of_a_batch_is_recorded() -> None:
    def metric(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        plain = model(batch["pixels"].float() / 255)
        return (plain + model(plain, scale=torch.tensor(3.0))).sum(1)

    batches = [{"pixels": torch.full((2, 2), 51 * n, dtype=torch.uint8)} for n in range(3)]
    calls = record_calls(Twice(), metric, batches)
    assert [len(call.args) for call in calls] == [1] * 6
    assert [list(call.kwargs) for call in calls] == [[], ["scale"]] * 3
    assert torch.equal(calls[2].args[0], torch.full((2, 2), 0.2))


def test_recorded_inputs_are_copies() -> None:
    def metric(model: Any, batch: torch.Tensor) -> torch.Tensor:
        result = model(batch)
        batch.zero_()
        return result[:, 0]

    calls = record_calls(Twice(), metric, [torch.ones(2, 2)])
    assert torch.equal(calls[0].args[0], torch.ones(2, 2))
    assert not calls[0].args[0].requires_grad


def test_the_model_keeps_no_hook_even_if_the_metric_fails() -> None:
    model = Twice()
    before = dict(vars(model))

    def metric(model: Any, batch: torch.Tensor) -> torch.Tensor:
        model(batch)
        raise ValueError("this batch has no labels")

    with pytest.raises(ValueError, match="no labels"):
        record_calls(model, metric, [torch.ones(2, 2)])
    assert not model._forward_pre_hooks
    assert not model._forward_pre_hooks_with_kwargs
    assert vars(model).keys() == before.keys()


def test_a_metric_that_goes_round_the_call_records_nothing() -> None:
    def metric(model: Any, batch: torch.Tensor) -> torch.Tensor:
        return model.forward(batch)[:, 0]

    assert record_calls(Twice(), metric, [torch.ones(2, 2)]) == []
