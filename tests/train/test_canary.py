"""A step that goes wrong while it trains is noticed, and training goes on as written."""

import copy
from typing import Any

import pytest
import torch

from slipstream.errors import UsageError
from slipstream.train.canary import Canary
from slipstream.train.step import TrainStep
from tests.train.odd import Odd, halved, odd_batches
from tests.train.small import (
    adamw,
    cross_entropy,
    losses_of,
    net,
    pictures,
    pictures_net,
    rows,
    same_bits,
    sgd,
)


@pytest.mark.parametrize("options", [
    {"channels_last": True, "update": "fused", "ema": 0.9, "clip_norm": 1.0},
    {"precision": "bf16"},
    {"precision": "fp16", "micro_batch": 8},
    {"compile": True},
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:mkldnn_matmul")
def test_looking_does_not_change_a_training(options: Any) -> None:
    make, batches = (net, rows(10)) if "compile" in options else (pictures_net, pictures(10))
    model, own = make(), make()
    step = TrainStep(model, adamw(model), cross_entropy, **options)
    looked = Canary(TrainStep(own, adamw(own), cross_entropy, **options), every=3)
    torch.manual_seed(5)
    assert losses_of(step, batches) == losses_of(looked, batches)
    assert looked.looks == 3
    assert looked.failed is None
    assert same_bits(model.state_dict(), own.state_dict())
    assert same_bits(step.optimizer.state_dict(), looked.step.optimizer.state_dict())
    assert same_bits(step.state_dict(), looked.step.state_dict())


def test_a_step_that_goes_wrong_goes_on_as_written() -> None:
    is_wrong = [False]
    model = Odd(0.0, 0.0, lambda features: halved(features) if is_wrong[0] else features)
    own = Odd(0.0, 0.0)
    optimizer, other = sgd(model), sgd(own)
    step = Canary(TrainStep(model, optimizer, cross_entropy, channels_last=True, ema=0.5), every=2)
    batches = odd_batches()
    losses_of(step, batches[:3])
    own.load_state_dict(copy.deepcopy(model.state_dict()))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    is_wrong[0] = True
    with pytest.warns(RuntimeWarning, match="Step 4: channels-last is not the same step any more"):
        found = losses_of(step, batches[3:])
    assert step.failed is not None
    assert "gradient" in step.failed
    assert step.looks == 2
    assert not step.step.choices.channels_last
    assert step.step.average is not None
    plain = TrainStep(own, other, cross_entropy)
    for one, right in zip(found, losses_of(plain, batches[3:]), strict=True):
        assert abs(one - right) < 1e-5


def test_a_step_that_begins_to_fail_is_replaced() -> None:
    def fail(features: torch.Tensor) -> torch.Tensor:
        raise ValueError("gone")

    model = Odd(0.0, 0.0, fail)
    step = Canary(TrainStep(model, sgd(model), cross_entropy, channels_last=True), every=1)
    with pytest.warns(RuntimeWarning, match="ValueError: gone"):
        losses_of(step, odd_batches())
    assert step.failed == "ValueError: gone"


def test_every_is_checked() -> None:
    model = Odd()
    with pytest.raises(UsageError, match="every is 0"):
        Canary(TrainStep(model, sgd(model), cross_entropy), every=0)


def test_hooks_of_the_optimizer_are_not_called_by_a_look() -> None:
    model = net()
    optimizer = sgd(model)
    steps: list[int] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    looked = Canary(TrainStep(model, optimizer, cross_entropy), every=2)
    losses_of(looked, rows(6))
    assert looked.looks == 3
    assert len(steps) == 6
