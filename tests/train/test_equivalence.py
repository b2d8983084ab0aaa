"""What is the same step, and what is another."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.train.choices import Choices
from slipstream.train.equivalence import equivalence
from slipstream.train.reference import Reference, reference_of
from slipstream.train.step import LossFn, TrainStep
from slipstream.train.subject import Subject
from tests.train.small import (
    adamw,
    cross_entropy,
    net,
    pictures,
    pictures_net,
    rows,
    sgd,
)

pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # without bfloat16 of its own


def subject_of(
    model: nn.Module, batches: Any = None, make: Any = sgd, loss_fn: LossFn = cross_entropy
) -> Subject:
    given = tuple(rows(4) if batches is None else batches)
    return Subject(model, make(model), loss_fn, given, Choices())


def why_of(subject: Subject, choices: Choices, reference: Reference | None = None) -> str | None:
    found = reference or reference_of(subject)
    return equivalence(subject.build(choices), found)[0]


@pytest.mark.parametrize("make", [sgd, adamw])
@pytest.mark.parametrize("choices", [
    Choices(), Choices("fused"), Choices("foreach"), Choices("loop"), Choices(set_to_none=False),
    Choices(channels_last=True), Choices(precision="bf16"), Choices(precision="fp16"),
    Choices(precision="fp16", update="fused", channels_last=True),
], ids=lambda choices: choices.name)  # fmt: skip
def test_switches_of_torch_are_the_same_step(make: Any, choices: Choices) -> None:
    subject = subject_of(pictures_net(), pictures(4), make)
    reference = reference_of(subject)
    assert reference.is_double
    why, error = equivalence(subject.build(choices), reference)
    assert why is None
    assert error.share < (0.3 if choices.precision else 2e-2)


def test_fewer_bits_are_not_exact() -> None:
    """As if bf16 were a switch that changes no bits."""

    class Rounding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = net()
            self.is_rounded = False

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.is_rounded):
                return self.layers(inputs).float()

    subject = subject_of(Rounding())
    step = subject.build(Choices())
    step.model.is_rounded = True  # type: ignore[assignment]
    why, _ = equivalence(step, reference_of(subject))
    assert why is not None
    assert "its loss is" in why or "gradient" in why


class OneWrong(nn.Module):
    """Whose gradients can be made wrong in one place."""

    def __init__(self, wrong: Any = None) -> None:
        super().__init__()
        self.layers = net()
        self.wrong = wrong

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.wrong is not None and self.layers[0].bias.requires_grad:
            bias = self.layers[0].bias + 0
            bias.register_hook(self.wrong)
            hidden = nn.functional.linear(inputs, self.layers[0].weight, bias)
            found: torch.Tensor = self.layers[2](self.layers[1](hidden))
            return found
        found = self.layers(inputs)
        return found.clone()


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize(
    "wrong",
    [torch.zeros_like, torch.neg, lambda g: 3 * g, lambda g: g.roll(1)],
    ids=["zero", "negative", "thrice", "shifted"],
)
def test_a_wrong_gradient_of_one_parameter_is_found(wrong: Any, precision: Any) -> None:
    subject = subject_of(OneWrong())
    reference = reference_of(subject)
    choices = Choices(precision=precision)
    assert why_of(subject, choices, reference) is None
    step = subject.build(choices)
    step.model.wrong = wrong  # type: ignore[assignment]
    why, _ = equivalence(step, reference)
    assert why is not None
    assert "gradient" in why


def test_one_per_cent_in_one_parameter_is_found() -> None:
    subject = subject_of(OneWrong())
    step = subject.build(Choices())
    step.model.wrong = lambda g: 1.01 * g  # type: ignore[assignment]
    why, _ = equivalence(step, reference_of(subject))
    assert why is not None
    assert "off by" in why


@pytest.mark.parametrize(
    "change",
    [{"lr": 0.0501}, {"momentum": 0.89}, {"weight_decay": 1e-3}, {"nesterov": True}],
    ids=lambda change: next(iter(change)),
)
def test_another_update_from_right_gradients_is_found(change: Any) -> None:
    subject = subject_of(net())
    step = subject.build(Choices())
    step.optimizer.param_groups[0].update(change)
    why, _ = equivalence(step, reference_of(subject))
    assert why is not None
    assert why.startswith("from the same gradients, ")


def test_zeros_where_there_is_no_gradient_are_another_step() -> None:
    """With weight decay an optimizer moves what has a gradient of zero."""

    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.extra = net(), nn.Parameter(torch.ones(5))
            self.calls = 0

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            found: torch.Tensor = self.layers(inputs)
            return found * self.extra if self.calls == 1 else found

    def decayed(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)

    subject = subject_of(Partly(), make=decayed)
    reference = reference_of(subject)
    assert reference.moments[1].eager.gradients[0] is None
    assert why_of(subject, Choices(), reference) is None
    why = why_of(subject, Choices(set_to_none=False), reference)
    assert why == "from the same gradients, extra is updated otherwise: off by " + str(why)[-7:]


def test_micro_batches_are_the_same_without_batch_norm() -> None:
    subject = subject_of(net(), rows(4, size=10))
    assert why_of(subject, Choices(micro_batch=3)) is None
    normed = subject_of(pictures_net(), pictures(4))
    assert why_of(normed, Choices(micro_batch=3)) is not None


def test_a_loss_that_is_a_sum_is_no_mean_of_micro_batches() -> None:
    def summed(model: Any, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum")

    subject = subject_of(net(), loss_fn=summed)
    why = why_of(subject, Choices(micro_batch=8))
    assert why is not None
    assert "its loss is" in why


def test_without_double_precision_it_is_compared_with_itself() -> None:
    def single(model: Any, batch: Any) -> torch.Tensor:
        return cross_entropy(model, (batch[0].float(), batch[1]))

    subject = subject_of(OneWrong(), loss_fn=single)
    reference = reference_of(subject)
    assert not reference.is_double
    for choices in (Choices(), Choices("fused"), Choices("foreach"), Choices(micro_batch=5)):
        assert why_of(subject, choices, reference) is None
    assert why_of(subject, Choices(precision="bf16"), reference) is None
    step = subject.build(Choices())
    step.model.wrong = lambda g: 1.01 * g  # type: ignore[assignment]
    assert equivalence(step, reference)[0] is not None


def test_random_numbers_are_the_same_for_all() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 5))
    subject = subject_of(model)
    reference = reference_of(subject)
    assert reference.draws
    assert reference.is_double, "dropout drops the same in double precision here"
    assert why_of(subject, Choices("fused"), reference) is None
    assert not reference_of(subject_of(net())).draws


def test_units_that_jump_are_no_reason() -> None:
    """Two inputs of a ReLU are so close to zero that rounding decides."""

    class Edge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner, self.outer = nn.Linear(12, 400), nn.Linear(400, 5)
            self.shift = 0.0

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = self.inner(inputs)
            if len(inputs) == 16:
                edge = torch.zeros_like(hidden)
                edge[0, 0] = hidden.detach()[0, 0]
                hidden = hidden - edge + self.shift * (edge != 0)
            found: torch.Tensor = self.outer(hidden.relu())
            return found

    batches = [*rows(3, size=16), *rows(1, size=17)]
    subject = subject_of(Edge(), batches)
    reference = reference_of(subject)
    step = subject.build(Choices())
    step.model.shift = 1e-12  # type: ignore[assignment]
    why, error = equivalence(step, reference)
    assert why is None
    assert error.share > 1e-4, "a unit did turn on"
    few = replace(reference, moments=reference.moments[:3])
    step = subject.build(Choices())
    step.model.shift = 1e-12  # type: ignore[assignment]
    assert equivalence(step, few)[0] is not None, "it did so in all batches"
    step = subject.build(Choices())
    step.model.shift = 1e-12  # type: ignore[assignment]
    assert equivalence(step, few, jumps=True)[0] is None


def test_a_step_on_the_callers_own_is_never_made() -> None:
    model = net()
    subject = subject_of(model)
    before = [one.detach().clone() for one in model.parameters()]
    reference_of(subject)
    assert all(map(torch.equal, before, model.parameters()))
    assert isinstance(subject.build(Choices()), TrainStep)
