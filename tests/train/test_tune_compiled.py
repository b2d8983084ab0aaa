"""`tune_step` with compiled candidates: seconds to get ready, random numbers, many of them."""

from typing import Any

import pytest
import torch
from torch import nn

import slipstream
from slipstream.train.choices import Choices
from slipstream.train.equivalence import equivalence
from slipstream.train.reference import reference_of
from slipstream.train.subject import Subject
from tests.clock import sleep
from tests.train.small import cross_entropy, net, rows, same_bits, sgd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]


_SLOW_S = 0.2


class SlowUncompiled(nn.Module):
    """Takes long unless it is compiled."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(*net(), nn.Dropout(dropout))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            sleep(_SLOW_S)
        found: torch.Tensor = self.layers(inputs)
        return found


@pytest.mark.usefixtures("told_times")
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_compiled_step_is_kept_with_its_cost(dropout: float) -> None:
    model = SlowUncompiled(dropout)
    recipe = slipstream.tune_step(
        model, cross_entropy, sgd(model), rows(), only=["compile"], budget_s=2400.0
    )
    assert recipe.choices.compile is True
    [row] = [row for row in recipe.rows if row.name == "compile"]
    assert row.state == "won"
    assert row.build_s is not None
    assert row.build_s > 0.05
    assert row.break_even_steps is not None
    assert row.break_even_steps == pytest.approx(row.build_s / _SLOW_S, rel=0.5, abs=1)
    assert "s to get ready pay off after" in row.why
    assert ("its random numbers are others" in row.why) == (dropout > 0)
    assert ("draws random numbers" in str(recipe)) == (dropout > 0)


def test_dropout_is_compared_with_torchs_own_random_numbers() -> None:
    """Without that the masks would be others, and gradients could not be compared."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.Dropout(0.5), nn.Linear(64, 5))
    subject = Subject(model, sgd(model), cross_entropy, tuple(rows(4)), Choices())
    reference = reference_of(subject)
    assert equivalence(subject.build(Choices(compile=True)), reference)[0] is not None
    with torch._inductor.config.patch(fallback_random=True):
        assert equivalence(subject.build(Choices(compile=True)), reference)[0] is None


def test_many_compiled_steps_do_not_use_up_the_compiler() -> None:
    """It stops after eight variants of the same code."""
    losses: list[Any] = []
    for seed in range(10):
        model = net(seed)
        if seed % 2:
            model = model.double()
        step = slipstream.TrainStep(model, sgd(model), cross_entropy, compile=True)
        batch = rows(1, dtype=next(model.parameters()).dtype)[0]
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        losses.append(step(batch))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > before
    assert same_bits(losses, losses)
