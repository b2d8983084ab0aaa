"""A step can be put back to where it began, bit for bit."""

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from slipstream.rng import Rng
from slipstream.train.choices import Choices
from slipstream.train.snapshot import Snapshot
from slipstream.train.step import TrainStep
from slipstream.train.subject import Subject, copied
from tests.train.small import adamw, cross_entropy, losses_of, pictures, pictures_net, same_bits


class Drawing(nn.Module):
    """Draws from all generators, and puts another tensor in the place of a buffer."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = pictures_net()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + 1
        noise = random.random() + float(np.random.rand()) + torch.rand(())
        found: torch.Tensor = nn.functional.dropout(self.layers(images), 0.3) * noise
        return found


def state_of(step: TrainStep) -> Any:
    return copy.deepcopy([step.model.state_dict(), step.optimizer.state_dict(), step.state_dict()])


@pytest.mark.parametrize("options", [
    {}, {"channels_last": True, "update": "fused"}, {"precision": "fp16", "ema": 0.9},
    {"update": "foreach", "set_to_none": False},
])  # fmt: skip
@pytest.mark.parametrize("steps_before", [0, 2])
def test_all_comes_back(options: Any, steps_before: int) -> None:
    model = Drawing()
    step = TrainStep(model, adamw(model), cross_entropy, **options)
    losses_of(step, pictures(steps_before))
    before, rng = state_of(step), Rng()
    start = Snapshot(step)
    first = losses_of(step, pictures(4))
    step.optimizer.param_groups[0]["lr"] = 7.0
    model.eval()
    assert not same_bits(state_of(step), before)
    assert Rng() != rng
    start.restore()
    assert same_bits(state_of(step), before)
    assert Rng() == rng
    assert model.layers.training
    assert losses_of(step, pictures(4)) == first
    start.restore()
    assert losses_of(step, pictures(4)) == first, "a second time, too"


def test_copies_belong_together_and_leave_the_original_alone() -> None:
    class Own(torch.optim.SGD):
        """With something of its own that its base class does not copy."""

        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, lr=0.1)
            self.calls = [0]

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.calls[0] += 1
            super().step(closure)

    model = pictures_net()
    optimizer = Own(model.parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    before = copy.deepcopy(model.state_dict())
    own, its = copied(model, optimizer)
    losses_of(TrainStep(own, its, cross_entropy), pictures(2))
    assert same_bits(model.state_dict(), before)
    assert not same_bits(own.state_dict(), before)
    assert optimizer.calls == [0]
    assert its.calls == [2]  # type: ignore[attr-defined]


def test_batches_of_the_usual_shape_are_found() -> None:
    batches = (*pictures(3, size=8), *pictures(1, size=3))
    model = pictures_net()
    subject = Subject(model, adamw(model), cross_entropy, batches, Choices())
    assert [len(batch[1]) for batch in subject.usual] == [8, 8, 8]
    assert [len(batch[1]) for batch in subject.checked] == [8, 8, 8, 3]
    assert subject.samples == 8
    assert subject.has_batch_norm
