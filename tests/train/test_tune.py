"""`tune_step`: what is faster and the same stays, everything else is a row with its reason."""

import copy
import itertools
import json
import random
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import slipstream
from slipstream.errors import UsageError
from slipstream.infer.keeping import at_most
from slipstream.train import judge, search
from slipstream.train.recipe import Recipe
from slipstream.train.row import Row
from tests.clock import sleep
from tests.train.odd import SLOW_S, Odd, halved, is_switched, odd_batches
from tests.train.small import adamw, cross_entropy, losses_of, net, rows, same_bits, sgd

SWITCH = "channels-last"

pytestmark = pytest.mark.usefixtures("told_times")


def test_of_a_loader_without_an_end_the_first_batches_are_taken() -> None:
    model = net()
    endless = itertools.cycle(rows())
    recipe = slipstream.tune_step(model, cross_entropy, sgd(model), endless, budget_s=0)
    assert not recipe.is_changed


def test_a_loader_draws_nothing_from_the_callers_numbers() -> None:
    model, data = net(), torch.utils.data.TensorDataset(*rows(1, 64)[0])
    before = torch.get_rng_state()
    loader = torch.utils.data.DataLoader(data, 8, shuffle=True)
    slipstream.tune_step(model, cross_entropy, sgd(model), loader, budget_s=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_of_the_caller_are_not_added_to() -> None:
    model = net()
    cross_entropy(model, rows()[0]).backward()
    own = list(model.parameters())
    before = [one.grad.clone() for one in own if one.grad is not None]

    def with_decay(given: Any, batch: Any) -> Any:
        return cross_entropy(given, batch) + sum(p.square().sum() for p in model.parameters())

    with pytest.raises(UsageError, match="computes with the caller's model"):
        slipstream.tune_step(model, with_decay, sgd(model), rows(), budget_s=0)
    for one, grad in zip(own, before, strict=True):
        assert one.grad is not None and torch.equal(one.grad, grad)


def test_a_batch_that_the_step_cannot_take_is_said_so() -> None:
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 5))
    batches = [*rows(), rows(1, 1)[0]]
    with pytest.raises(UsageError, match=r"fails with one of the batches: .*Expected more"):
        slipstream.tune_step(model, cross_entropy, sgd(model), batches, budget_s=8.0)


def test_a_step_that_has_no_memory_for_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(subject: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

    monkeypatch.setattr(judge, "reference_of", full)
    with pytest.raises(UsageError, match=r"No memory is left .*9 GiB\.\. Give smaller batches"):
        tune(Odd())


def tune(model: nn.Module, **options: Any) -> Recipe:
    given = {"only": [SWITCH], "budget_s": 800.0, **options}
    return slipstream.tune_step(model, cross_entropy, sgd(model), odd_batches(), **given)


def row_of(recipe: Recipe, name: str = SWITCH) -> Row:
    [row] = [row for row in recipe.rows if row.name == name]
    return row


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return tune(Odd())


@pytest.mark.slow
def test_what_is_faster_and_the_same_is_kept(recipe: Recipe) -> None:
    model = Odd()
    assert recipe.choices.channels_last
    assert recipe.is_changed
    assert recipe.name == SWITCH
    assert row_of(recipe).state == "won"
    assert recipe.speed.low > 1.5
    assert recipe.curve is not None
    assert recipe.curve.verdict == "equivalent"
    shown = str(recipe)
    assert "channels-last: " in shown
    assert "loading of data is not in these times" in shown
    assert "losses inside the band of 4 runs" in shown
    assert json.loads(json.dumps(recipe.as_dict()))["choices"]["channels_last"] is True
    step = recipe.apply(model, sgd(model), cross_entropy, ema=0.5)
    assert step.choices.channels_last
    assert step.choices.ema == 0.5


@pytest.mark.slow
def test_the_recipe_and_its_code_train_the_same(recipe: Recipe) -> None:
    model, own = Odd(), Odd()
    space: dict[str, Any] = {}
    exec(recipe.to_code(), space)
    step = recipe.apply(model, sgd(model), cross_entropy)
    plain = space["make_step"](own, sgd(own), cross_entropy)
    assert losses_of(step, odd_batches()) == losses_of(plain, odd_batches())
    assert same_bits(model.state_dict(), own.state_dict())


def rejected(change: Any, slow_s: float = SLOW_S) -> Row:
    recipe = tune(Odd(slow_s, change=change))
    assert not recipe.is_changed
    assert recipe.curve is None
    assert "Nothing is surely faster" in str(recipe)
    return row_of(recipe)


def test_wrong_gradients_with_a_right_loss_are_rejected() -> None:
    row = rejected(halved)
    assert row.state == "rejected"
    assert "gradient is off by" in row.why


def test_a_step_that_fails_in_the_last_comparison_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(*args: Any) -> None:
        raise FloatingPointError("the loss is infinite")

    monkeypatch.setattr(search, "Times", diverges)
    recipe = tune(Odd())
    assert not recipe.is_changed
    row = row_of(recipe)
    assert row.state == "failed"
    assert row.why.endswith("FloatingPointError: the loss is infinite")


def test_a_step_that_hangs_in_the_last_comparison_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "Times", lambda *args: time.sleep(60))
    monkeypatch.setattr(search, "at_most", lambda seconds: at_most(min(seconds, 0.5)))
    signal.setitimer(signal.ITIMER_REAL, 0)  # that of the test itself
    row = row_of(tune(Odd()))
    assert row.state == "failed"
    assert "not done after" in row.why


def test_a_wrong_loss_is_rejected() -> None:
    row = rejected(lambda features: features * 1.001)
    assert row.state == "rejected"
    assert "its loss is" in row.why


def test_a_candidate_that_gives_nan_is_a_row() -> None:
    row = rejected(lambda features: features * float("nan"))
    assert (row.state, row.why) == ("rejected", "its loss is nan")


def test_a_gradient_that_is_no_number_is_a_row() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, features: torch.Tensor) -> torch.Tensor:
            return features.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * float("inf")

    row = rejected(Broken.apply)
    assert row.state == "rejected"
    assert "are no numbers" in row.why


def test_a_candidate_that_raises_is_a_row() -> None:
    def fail(features: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such layout\nand more")

    row = rejected(fail)
    assert (row.state, row.why) == ("failed", "ValueError: no such layout")


def test_a_candidate_without_memory_is_a_row() -> None:
    def fail(features: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    row = rejected(fail)
    assert row.state == "failed"
    assert "OutOfMemoryError: CUDA out of memory" in row.why


def test_a_candidate_that_leaks_is_a_row() -> None:
    kept = []

    def leak(features: torch.Tensor) -> torch.Tensor:
        kept.append(torch.ones(1 << 20))  # four megabytes
        return features

    row = rejected(leak)
    assert row.state == "failed"
    assert "every step keeps 4.2 MB" in row.why


def test_buffers_that_are_not_updated_are_rejected() -> None:
    class Forgetful(Odd):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            before = self.norm.running_mean.clone() if self.norm.running_mean is not None else None
            found = super().forward(images)
            if images.stride(1) == 1 and before is not None:
                self.norm.running_mean = before
            return found

    recipe = tune(Forgetful())
    assert row_of(recipe).state == "rejected"
    assert "buffer norm.running_mean" in row_of(recipe).why


@pytest.mark.parametrize(("slow_s", "fast_s"), [(1, 1), (1, 1.01), (1, 0.99)])
def test_what_is_as_fast_does_not_win(slow_s: float, fast_s: float) -> None:
    recipe = tune(Odd(slow_s, fast_s))
    assert not recipe.is_changed
    assert row_of(recipe).state == "slower"
    assert row_of(recipe).why.startswith("not surely faster: ")
    assert (recipe.speed.low, recipe.speed.high) == (1.0, 1.0)


def test_what_is_far_slower_is_not_looked_at() -> None:
    recipe = tune(Odd(0.2, 5.0))
    assert row_of(recipe).state == "slower"
    assert "times slower; nothing was compared" in row_of(recipe).why


@pytest.mark.slow
def test_a_candidate_that_hangs_is_a_row() -> None:
    """In a process of its own: the alarm of this one is the time limit of the test."""
    script = """
        import time, torch, slipstream
        from tests.train.odd import Odd, odd_batches
        from tests.train.small import cross_entropy, sgd

        def hang(features):
            while True:
                time.sleep(0.01)

        if __name__ == "__main__":
            model = Odd(change=hang)
            recipe = slipstream.tune_step(
                model, cross_entropy, sgd(model), odd_batches(),
                only=["channels-last"], budget_s=5.0,
            )
            print([(row.name, row.state, row.why) for row in recipe.rows])
    """
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "('channels-last', 'failed', 'not done after" in done.stdout
    assert time.monotonic() - start < 60


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    return copy.deepcopy(
        [
            model.state_dict(),
            optimizer.state_dict(),
            [None if one.grad is None else one.grad for one in model.parameters()],
            [part.training for part in model.modules()],
            [one.stride() for one in model.parameters()],
            torch.get_rng_state(),
            random.getstate(),
            [str(each) for each in np.random.get_state()],
            torch.get_num_threads(),
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.allow_tf32,
            torch.backends.cuda.matmul.allow_tf32,
            torch.is_grad_enabled(),
        ]
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("change", [lambda features: features, halved])
def test_nothing_of_the_callers_changes(change: Any) -> None:
    """Neither where a switch is kept, nor where it is refused; in the middle of a training."""
    model = Odd(0.4, 0.0, change)
    model.out.eval()
    optimizer = sgd(model)
    for batch in odd_batches()[:2]:
        cross_entropy(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    batches = odd_batches()
    given = copy.deepcopy(batches)
    before = state_of(model, optimizer)
    with torch.no_grad():
        slipstream.tune_step(
            model, cross_entropy, optimizer, batches,
            only=[SWITCH, "fused", "foreach", "zeroed gradients", "bf16"], accuracy="mixed",
            budget_s=600.0, clip_norm=1.0,
        )  # fmt: skip
    assert same_bits(state_of(model, optimizer), before)
    assert same_bits(batches, given)


def test_an_optimizer_with_a_scheduler_stays_its_own() -> None:
    model = Odd()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    before = state_of(model, optimizer)
    slipstream.tune_step(
        model, cross_entropy, optimizer, odd_batches(), only=[SWITCH], budget_s=300
    )
    assert same_bits(state_of(model, optimizer), before)
    assert scheduler.last_epoch == 0


@pytest.mark.slow
def test_fewer_bits_are_measured_and_kept_only_if_admitted() -> None:
    class Sleepy(nn.Module):
        """Slow unless it computes with fewer bits."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = net()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.layers(inputs)
            sleep(0.6 if found.dtype == torch.float32 else 0.0)
            return found

    def found(accuracy: Any) -> Recipe:
        model = Sleepy()
        return slipstream.tune_step(
            model, cross_entropy, adamw(model), rows(), only=["bf16"], accuracy=accuracy,
            budget_s=800.0,
        )  # fmt: skip

    exact = found("exact")
    assert not exact.is_changed
    assert row_of(exact, "bf16").state == "passed"
    assert row_of(exact, "bf16").why == "not admitted: accuracy='mixed' would"
    mixed = found("mixed")
    assert mixed.choices.precision == "bf16"
    assert mixed.curve is not None
    assert mixed.curve.verdict == "equivalent"
    short = slipstream.tune_step(
        (model := Sleepy()), cross_entropy, adamw(model), rows(), only=["bf16"], accuracy="mixed",
        budget_s=1.0,
    )  # fmt: skip
    assert not short.is_changed, "fewer bits have to be seen in training"
    assert row_of(short, "bf16").state in ("passed", "skipped")


class Later(Odd):
    """Is right at first where it is switched, and wrong after some calls."""

    calls = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += is_switched(images)
        self.change = flipped if self.calls > 40 else (lambda features: features)
        return super().forward(images)


def flipped(features: torch.Tensor) -> torch.Tensor:
    return features.flip(0)


@pytest.mark.slow
def test_what_trains_otherwise_is_rejected_in_the_end() -> None:
    """Gradients of a few steps were right."""
    recipe = tune(Later())
    assert not recipe.is_changed
    assert recipe.curve is not None
    assert recipe.curve.verdict == "different"
    assert row_of(recipe).state == "rejected"
    assert row_of(recipe).why.startswith("training with it: loss leaves the band at step ")
    assert row_of(recipe).error is not None
    assert recipe.speed.value == 1.0


@pytest.mark.slow
def test_without_the_bits_that_train_otherwise_the_rest_stays() -> None:
    class LaterHalf(Odd):
        """Faster channels-last, faster still with fewer bits, which are wrong after a while."""

        calls = 0

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            is_half = torch.is_autocast_enabled("cpu")
            self.calls += is_half
            self.change = flipped if is_half and self.calls > 40 else (lambda features: features)
            self.fast_s = 0.0 if is_half else 0.3
            return super().forward(images)

    recipe = tune(LaterHalf(), only=[SWITCH, "bf16"], accuracy="mixed", budget_s=1400.0)
    assert recipe.choices.channels_last
    assert recipe.choices.precision is None
    states = [(row.name, row.state) for row in recipe.rows]
    assert (SWITCH, "rejected") in states, "with fewer bits"
    assert ("bf16", "rejected") in states
    assert states[-1] == (SWITCH, "won")
    assert recipe.speed.low > 1


@pytest.mark.slow
def test_another_way_takes_the_place_of_the_one_before() -> None:
    class SGD(torch.optim.SGD):
        """Takes the less the better its way."""

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            group = self.param_groups[0]
            sleep(0.0 if group["foreach"] else 0.4 if group["fused"] else 1.2)
            super().step(closure)

    SGD.__module__ = "torch.optim.sgd"
    model = net()
    recipe = slipstream.tune_step(
        model, cross_entropy, SGD(model.parameters(), lr=0.1), rows(),
        only=["fused", "foreach"], budget_s=800.0,
    )  # fmt: skip
    assert recipe.choices.update == "foreach"
    assert row_of(recipe, "fused").state == "passed"
    assert row_of(recipe, "fused").why == "foreach is faster still"


def test_without_time_nothing_is_tried() -> None:
    model = net()
    recipe = slipstream.tune_step(model, cross_entropy, sgd(model), rows(), budget_s=0)
    assert not recipe.is_changed
    assert row_of(recipe, "fused").why == "no time was left in the budget"
    assert row_of(recipe, "channels-last").why == "there is no 2-d convolution"
    assert row_of(recipe, "tf32").why == "the model is not on a CUDA device"


def test_switches_that_cannot_be_tried_say_why() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    recipe = slipstream.tune_step(model, cross_entropy, optimizer, rows(), budget_s=0)
    assert row_of(recipe, "fused").why == "it is on"
    model = net()
    slow = torch.optim.RMSprop(model.parameters())
    recipe = slipstream.tune_step(model, cross_entropy, slow, rows(), budget_s=0)
    assert row_of(recipe, "fused").why == "RMSprop has no fused form"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": 3}, "model is a int"),
        ({"optimizer": 3}, "optimizer is a int"),
        ({"loss_fn": 3}, "loss_fn is a int"),
        ({"batches": []}, "no batches"),
        ({"batches": 5}, "batches is a int; expected a list or a loader"),
        ({"budget_s": "a"}, "budget_s is 'a'"),
        ({"micro_batch": "x"}, "micro_batch is 'x'"),
        ({"accuracy": "lossy"}, "accuracy is 'lossy'; expected one of 'exact', 'mixed'"),
        ({"budget_s": -1.0}, "budget_s is -1.0"),
        ({"only": ["faster"]}, r"only has \['faster'\]; expected some of \['fused'"),
        ({"micro_batch": 0}, "micro_batch is 0"),
    ],
)
def test_arguments_are_checked(change: Any, words: str) -> None:
    model = net()
    given: Any = {
        "model": model, "loss_fn": cross_entropy, "optimizer": sgd(model), "batches": rows(),
    }  # fmt: skip
    with pytest.raises(UsageError, match=words):
        slipstream.tune_step(**{**given, **change})


def test_what_cannot_be_tuned_is_said_so() -> None:
    model, other = net(), net()
    with pytest.raises(UsageError, match="not with the one that it is given"):
        slipstream.tune_step(model, lambda m, b: cross_entropy(model, b), sgd(model), rows())
    assert all(one.grad is None for one in model.parameters())
    normed = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 5))
    kept = [each.clone() for each in normed.buffers()]
    narrow = [(torch.randn(16, 8), torch.randint(0, 5, (16,))) for _ in range(8)]
    with pytest.raises(UsageError, match="not with the one that it is given"):
        slipstream.tune_step(normed, lambda m, b: cross_entropy(normed, b), sgd(normed), narrow)
    assert all(map(torch.equal, kept, normed.buffers()))
    with pytest.raises(UsageError, match="4 of 4 parameters of the optimizer are not the model's"):
        slipstream.tune_step(model, cross_entropy, sgd(other), rows())
    with pytest.raises(UsageError, match="The step as written fails: ZeroDivisionError"):
        slipstream.tune_step(model, lambda m, b: 1 / 0, sgd(model), rows())

    def normalised(model: Any, batch: Any) -> torch.Tensor:
        return cross_entropy(model, (batch[0].div_(2), batch[1]))

    with pytest.raises(UsageError, match="loss_fn changes its batch"):
        slipstream.tune_step(model, normalised, sgd(model), rows())
    with pytest.raises(UsageError, match="loss of the step as written is nan"):
        slipstream.tune_step(
            model, lambda m, b: cross_entropy(m, b) * float("nan"), sgd(model), rows()
        )
    with pytest.raises(UsageError, match=r"outside of torch\.autocast"), torch.autocast("cpu"):
        slipstream.tune_step(model, cross_entropy, sgd(model), rows())
