"""`TrainStep` beside loops that are written by hand."""

import copy
import math
import subprocess
import sys
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import nn

import slipstream
from slipstream.errors import UsageError
from slipstream.train.step import TrainStep
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


def by_hand(model: nn.Module, optimizer: Any, batches: Any) -> list[float]:
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("make", [adamw, sgd])
def test_without_options_it_is_the_loop_bit_for_bit(make: Any) -> None:
    model, own = pictures_net(), pictures_net()
    optimizer, other = make(model), make(own)
    step = slipstream.TrainStep(model, optimizer, cross_entropy)
    assert losses_of(step, pictures()) == by_hand(own, other, pictures())
    assert same_bits(model.state_dict(), own.state_dict())
    assert same_bits(optimizer.state_dict(), other.state_dict())


def test_all_options_are_the_loop_that_has_them_bit_for_bit() -> None:
    model, own = pictures_net(), pictures_net()
    optimizer, other = adamw(model), adamw(own, fused=True)
    step = TrainStep(
        model, optimizer, cross_entropy, precision="fp16", channels_last=True, update="fused",
        micro_batch=3, clip_norm=0.5, ema=0.9, set_to_none=False,
    )  # fmt: skip
    losses = losses_of(step, pictures())
    own.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = copy.deepcopy(own)
    scaler = torch.amp.GradScaler("cpu")
    for number, (images, labels) in enumerate(pictures()):
        images = images.contiguous(memory_format=torch.channels_last)  # noqa: PLW2901
        other.zero_grad(set_to_none=False)
        total = 0.0
        for start in (0, 3, 6):
            few = images[start : start + 3]
            with torch.autocast("cpu", torch.float16):
                loss = cross_entropy(own, (few, labels[start : start + 3]))
            loss = loss.float() * (len(few) / 8)
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()
        scaler.unscale_(other)
        norm = nn.utils.clip_grad_norm_(own.parameters(), 0.5)
        scaler.step(other)
        scaler.update()
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), own.parameters(), strict=True):
                mean.lerp_(parameter, 1 - 0.9)
            for mean, buffer in zip(average.buffers(), own.buffers(), strict=True):
                mean.copy_(buffer)
        assert losses[number] == float(total)
    assert same_bits(model.state_dict(), own.state_dict())
    assert same_bits(step.average.state_dict(), average.state_dict())
    assert step.grad_norm is not None
    assert torch.equal(step.grad_norm, norm)
    assert [model[0].weight.stride(), optimizer.state[model[0].weight]["exp_avg"].stride()] == [
        own[0].weight.stride()
    ] * 2


class _Wrapped:
    """An optimizer of another library, around torch's."""

    def __init__(self, own: Any) -> None:
        self._own = own

    @property
    def param_groups(self) -> Any:
        return self._own.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._own.zero_grad(set_to_none)

    def step(self) -> None:
        self._own.step()


def test_wrappers_of_other_libraries_do() -> None:
    model, other = net(), net()
    step = TrainStep(model, _Wrapped(sgd(model)), cross_entropy)
    assert [float(step(batch)) for batch in rows()] == by_hand(other, sgd(other), rows())


def test_micro_batches_add_up_to_the_whole_batch() -> None:
    """In double precision, with a last part that is smaller."""
    whole, parts = net().double(), net().double()
    batch = rows(1, size=23, dtype=torch.float64)[0]
    one = TrainStep(whole, sgd(whole), cross_entropy)
    other = TrainStep(parts, sgd(parts), cross_entropy, micro_batch=5)
    assert math.isclose(float(one.backward(batch)), float(other.backward(batch)), rel_tol=1e-14)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.allclose(a.grad, b.grad, rtol=1e-12, atol=1e-16)


def test_a_mean_of_means_is_not_what_it_computes() -> None:
    """Parts of unlike sizes count by their samples."""
    model = net().double()
    inputs, labels = rows(1, size=9, dtype=torch.float64)[0]
    step = TrainStep(model, sgd(model), cross_entropy, micro_batch=8)
    with torch.no_grad():
        whole = float(cross_entropy(model, (inputs, labels)))
        first = float(cross_entropy(model, (inputs[:8], labels[:8])))
        last = float(cross_entropy(model, (inputs[8:], labels[8:])))
    assert abs((first + last) / 2 - whole) > 1e-3
    assert math.isclose(float(step((inputs, labels))), whole, rel_tol=1e-14)


def test_batches_of_many_forms_are_cut() -> None:
    seen: list[Any] = []

    def loss_fn(model: Any, batch: Any) -> torch.Tensor:
        seen.append(batch)
        return nn.functional.cross_entropy(model(batch["x"]), batch["more"].labels)

    More = namedtuple("More", "labels names weight")
    inputs, labels = rows(1, size=4)[0]
    batch = {"x": inputs, "more": More(labels, ["a", "b", "c", "d"], torch.tensor(2.0)), "n": None}
    model = net()
    TrainStep(model, sgd(model), loss_fn, micro_batch=3)(batch)
    assert [one["more"].names for one in seen] == [["a", "b", "c"], ["d"]]
    assert [tuple(one["x"].shape) for one in seen] == [(3, 12), (1, 12)]
    assert [one["more"].weight.item() for one in seen] == [2.0, 2.0]


def test_a_batch_that_cannot_be_cut_is_said_so() -> None:
    model = net()
    step = TrainStep(model, sgd(model), cross_entropy, micro_batch=2)
    with pytest.raises(UsageError, match=r"first dimensions \[3, 4\]"):
        step((torch.zeros(4, 12), torch.zeros(3)))
    with pytest.raises(UsageError, match="cannot be cut"):
        step("nothing")


def test_clipping_is_of_unscaled_gradients() -> None:
    model, own = net(), net()
    batch = rows(1)[0]
    step = TrainStep(model, sgd(model), cross_entropy, precision="fp16", clip_norm=0.01)
    step(batch)
    cross_entropy(own, batch).backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(own.parameters(), 0.01)
    assert step.grad_norm is not None
    assert abs(float(step.grad_norm / norm) - 1) < 0.01, "not of the scaled ones"


@pytest.mark.parametrize("fused", [False, True])
def test_overflows_are_skipped_and_counted(fused: bool) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    step = TrainStep(model, optimizer, cross_entropy, precision="fp16")
    assert step.scaler is not None
    before = copy.deepcopy(model.state_dict())
    inputs, labels = rows(1)[0]
    step((inputs * 1e30, labels))
    assert step.skipped == 1
    assert same_bits(model.state_dict(), before)
    assert step.scaler.get_scale() == 2**15
    step((inputs, labels))
    assert step.skipped == 1
    assert not same_bits(model.state_dict(), before)


def test_the_average_follows() -> None:
    model = pictures_net()
    step = TrainStep(model, sgd(model), cross_entropy, ema=0.75)
    expected = [parameter.detach().clone() for parameter in model.parameters()]
    for batch in pictures(5):
        step(batch)
        expected = [
            0.75 * mean + 0.25 * parameter.detach()
            for mean, parameter in zip(expected, model.parameters(), strict=True)
        ]
    for mean, right in zip(step.average.parameters(), expected, strict=True):
        assert torch.allclose(mean, right, rtol=1e-5, atol=1e-7)
        assert not mean.requires_grad
    for mean, own in zip(step.average.buffers(), model.buffers(), strict=True):
        assert torch.equal(mean, own)
    assert not step.average.training
    with pytest.raises(UsageError, match="keeps no average"):
        _ = TrainStep(model, sgd(model), cross_entropy).average


def test_complex_parameters_are_averaged() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(4, dtype=torch.cfloat))
    step = TrainStep(model, sgd(model), lambda m, _: m.weight.abs().square().mean(), ema=0.75)
    step(torch.zeros(1))
    right = 0.75 * torch.ones(4) + 0.25 * model.weight.detach()
    assert torch.allclose(step.average.weight, right)


def test_it_goes_on_from_its_state() -> None:
    batches = rows(10)
    options: Any = {"precision": "fp16", "ema": 0.9}
    whole = net()
    step = TrainStep(whole, adamw(whole), cross_entropy, **options)
    first = losses_of(step, batches)
    model = net()
    optimizer = adamw(model)
    half = TrainStep(model, optimizer, cross_entropy, **options)
    inputs, labels = batches[0]
    losses_of(half, batches[:5])
    saved = copy.deepcopy([half.state_dict(), model.state_dict(), optimizer.state_dict()])
    half((inputs * 1e30, labels))  # the scale that is saved is not the one of a new scaler
    other = net(seed=3)
    its = adamw(other)
    other.load_state_dict(saved[1])
    its.load_state_dict(saved[2])
    again = TrainStep(other, its, cross_entropy, **options)
    again.load_state_dict(saved[0])
    assert losses_of(again, batches[5:]) == first[5:]
    assert same_bits(again.average.state_dict(), step.average.state_dict())
    assert again.state_dict()["scaler"] == step.state_dict()["scaler"]
    again.load_state_dict({**half.state_dict()})
    assert again.skipped == 1
    assert again.state_dict()["scaler"]["scale"] == 2**15
    plain = TrainStep(other, its, cross_entropy)
    with pytest.raises(UsageError, match="had a scaler, this one has none"):
        plain.load_state_dict(saved[0])
    with pytest.raises(UsageError, match="had no scaler, this one has one"):
        again.load_state_dict(plain.state_dict())


@pytest.mark.parametrize("way", ["fused", "foreach", "loop"])
def test_an_optimizer_that_has_begun_can_be_switched(way: Any) -> None:
    model, own = pictures_net(norm=False), pictures_net(norm=False)
    batches = pictures(10)
    optimizer, other = adamw(model, foreach=False), adamw(own, foreach=False)
    by_hand(model, optimizer, batches[:3])
    by_hand(own, other, batches[:3])
    step = TrainStep(model, optimizer, cross_entropy, update=way, channels_last=True)
    for one, right in zip(losses_of(step, batches[3:]), by_hand(own, other, batches[3:]),
                          strict=True):  # fmt: skip
        assert abs(one - right) < 1e-4
    assert optimizer.param_groups[0][way if way != "loop" else "lr"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of the compiler
def test_compiled_it_is_the_same_training() -> None:
    class Loss:
        def __call__(self, model: Any, batch: Any) -> torch.Tensor:
            assert model.training
            penalty = sum(parameter.square().sum() for parameter in model.parameters())
            found: torch.Tensor = cross_entropy(model, batch) + 1e-3 * penalty + model.extra
            return found

    model, own = net(), net()
    model.extra = own.extra = 0.5  # type: ignore[assignment]
    step = TrainStep(model, sgd(model), Loss(), compile=True)
    plain = TrainStep(own, sgd(own), Loss())
    for one, right in zip(losses_of(step, rows()), losses_of(plain, rows()), strict=True):
        assert abs(one - right) < 1e-5
    assert not hasattr(model, "_orig_mod")
    assert model._compiled_call_impl is None


def test_what_loss_fn_gives_is_checked() -> None:
    model = net()
    with pytest.raises(UsageError, match=r"loss_fn gave \(16, 5\); expected a scalar"):
        TrainStep(model, sgd(model), lambda m, b: m(b[0]))(rows(1)[0])
    with pytest.raises(UsageError, match="loss_fn gave float"):
        TrainStep(model, sgd(model), lambda m, b: 1.0)(rows(1)[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "int8"}, "precision is 'int8'; expected one of 'tf32', 'bf16', 'fp16'"),
        ({"update": "fast"}, "update is 'fast'"),
        ({"micro_batch": 0}, "micro_batch is 0"),
        ({"clip_norm": 0.0}, "clip_norm is 0.0"),
        ({"ema": 1.0}, "ema is 1.0"),
        ({"micro_batch": "x"}, "micro_batch is 'x'"),
        ({"clip_norm": "a"}, "clip_norm is 'a'"),
        ({"ema": "a"}, "ema is 'a'"),
    ],
)
def test_options_are_checked(options: Any, words: str) -> None:
    model = net()
    with pytest.raises(UsageError, match=words):
        TrainStep(model, sgd(model), cross_entropy, **options)


def test_what_a_step_is_made_of_is_checked() -> None:
    model = net()
    with pytest.raises(UsageError, match="model is a int"):
        TrainStep(3, sgd(model), cross_entropy)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="optimizer is a int"):
        TrainStep(model, 3, cross_entropy)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="loss_fn is a int"):
        TrainStep(model, sgd(model), 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="LBFGS computes the loss several times"):
        TrainStep(model, torch.optim.LBFGS(model.parameters()), cross_entropy)
    with pytest.raises(UsageError, match="'fused', which RMSprop is not"):
        TrainStep(model, torch.optim.RMSprop(model.parameters()), cross_entropy, update="fused")
    with pytest.raises(UsageError, match="SparseAdam has one way only"):
        TrainStep(model, torch.optim.SparseAdam(model.parameters()), cross_entropy, update="loop")


def test_flags_of_a_gpu_are_put_back() -> None:
    seen = []

    def loss_fn(model: Any, batch: Any) -> torch.Tensor:
        seen.append((torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32))
        if len(seen) > 1:
            raise KeyError
        return cross_entropy(model, batch)

    model = net()
    step = TrainStep(model, sgd(model), loss_fn, precision="tf32", cudnn_benchmark=True)
    step(rows(1)[0])
    with pytest.raises(KeyError):
        step(rows(1)[0])
    assert seen == [(True, True)] * 2
    assert not torch.backends.cudnn.benchmark
    assert not torch.backends.cuda.matmul.allow_tf32


def test_an_average_has_the_buffers_that_the_model_has_now() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count = self.count + 1
            return self.layer(x)

    model = Counts()
    step = TrainStep(model, sgd(model), lambda model, x: model(x).mean(), ema=0.9)
    for _ in range(3):
        step(torch.ones(2, 4))
    assert float(dict(step.average.named_buffers())["count"]) == 3


def test_groups_that_are_added_later_are_clipped() -> None:
    first, second = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    optimizer = sgd(first)

    def loss_fn(model: Any, x: Any) -> torch.Tensor:
        return 1e4 * (first(x) + second(x)).sum()

    step = TrainStep(first, optimizer, loss_fn, clip_norm=1e-3)
    optimizer.add_param_group({"params": list(second.parameters())})
    step(torch.ones(2, 4))
    gradients = [one.grad for one in (*first.parameters(), *second.parameters())]
    assert torch.nn.utils.get_total_norm([g for g in gradients if g is not None]) < 1.1e-3


def test_onednn_is_off_while_a_step_runs() -> None:
    seen = []

    def loss_fn(model: Any, batch: Any) -> torch.Tensor:
        seen.append(torch._C._get_mkldnn_enabled())
        return cross_entropy(model, batch)

    before = torch._C._get_mkldnn_enabled()
    model = net()
    TrainStep(model, sgd(model), loss_fn, own_kernels=True)(rows(1)[0])
    assert seen == [False]
    assert torch._C._get_mkldnn_enabled() == before


def test_tf32_by_its_newer_name_is_put_back() -> None:
    """In a process of its own, as torch keeps in mind who has set it how."""
    script = """
import torch
from slipstream.train.choices import Choices
from slipstream.tf32 import tf32_of, tf32_words
from slipstream.train.flags import flags_of
matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
states = lambda: (matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision)
first = states()
with flags_of(Choices(precision="tf32")):
    assert states() == ("tf32",) * 3 and tf32_of(matmul) and tf32_of(cudnn)
assert states() == first and not matmul.allow_tf32 and cudnn.allow_tf32
assert torch.get_float32_matmul_precision() == "highest"
for value in ("ieee", "tf32"):
    matmul.fp32_precision = value
    assert tf32_of(matmul) == (value == "tf32")
    assert ("on for matrix" if value == "tf32" else "off for matrix") in tf32_words()
    with flags_of(Choices(precision="tf32")):
        assert tf32_of(matmul)
    assert matmul.fp32_precision == value
"""
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("make", [adamw, sgd])
def test_a_checkpoint_of_another_layout_is_laid_out_anew(make: Any) -> None:
    def trained(update: str, channels_last: bool, state: Any = None) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Conv2d(3, 4, 3)
        optimizer = make(model)
        step = TrainStep(
            model, optimizer, lambda model, x: model(x).square().mean(), update=update,  # type: ignore[arg-type]
            channels_last=channels_last,
        )  # fmt: skip
        if state is not None:
            optimizer.load_state_dict(state)
        for seed in range(3):
            step(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed)))
        return model.weight.detach(), optimizer.state_dict()

    _, plain = trained("loop", channels_last=False)
    expected, _ = trained("loop", channels_last=True, state=copy.deepcopy(plain))
    found, after = trained("fused", channels_last=True, state=copy.deepcopy(plain))
    assert after["param_groups"][0]["fused"]
    assert torch.allclose(found, expected, atol=1e-6)


def test_fused_updates_go_on_from_a_checkpoint_that_lies_otherwise() -> None:
    """They read what is kept for a parameter as if it lay like the parameter."""
    batches = pictures()
    plain = pictures_net()
    own = adamw(plain, fused=True)
    losses_of(TrainStep(plain, own, cross_entropy), batches[:4])
    saved = copy.deepcopy([plain.state_dict(), own.state_dict()])
    expected = losses_of(TrainStep(plain, own, cross_entropy), batches[4:])
    for first, then in ((False, True), (True, False)):
        model = pictures_net()
        optimizer = adamw(model, fused=True)
        step = TrainStep(model, optimizer, cross_entropy, channels_last=first)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        half = copy.deepcopy(optimizer.state_dict())
        if then:
            step = TrainStep(model, optimizer, cross_entropy, channels_last=True)
        optimizer.load_state_dict(half)
        found = losses_of(step, batches[4:])
        assert found == pytest.approx(expected, rel=1e-3), (first, then)


def test_convolutions_of_three_dimensions_stay_as_they_lie() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Unflatten(1, (1, 4)), nn.Conv3d(1, 2, 2))
    step = TrainStep(model, sgd(model), lambda net, batch: net(batch).mean(), channels_last=True)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[2].weight.is_contiguous()
    step(torch.randn(2, 2, 8, 8))


@pytest.mark.parametrize("options", [
    {"channels_last": True, "update": "fused", "set_to_none": False},
    {"channels_last": True, "update": "fused"},
])  # fmt: skip
def test_gradients_that_are_there_already_do_no_harm(options: Any) -> None:
    """A fused update takes for granted that they lie as the parameters do."""
    batches = pictures(2)
    models = [pictures_net(norm=False), pictures_net(norm=False)]
    for model in models:
        cross_entropy(model, batches[0]).backward()
    plain = TrainStep(models[0], sgd(models[0]), cross_entropy)
    step = TrainStep(models[1], sgd(models[1]), cross_entropy, **options)
    losses_of(plain, batches), losses_of(step, batches)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_zeroed_gradients_do_not_move_what_is_frozen_later() -> None:
    model = net()
    step = TrainStep(model, adamw(model), cross_entropy, set_to_none=False)
    losses_of(step, rows(3))
    model[0].requires_grad_(False)
    frozen = model[0].weight.detach().clone()
    losses_of(step, rows(5))
    assert torch.equal(model[0].weight, frozen)


class Growing(torch.nn.Module):
    """Buffers that come, and grow, with what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(12, 5)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("late", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = torch.ones(len(x))
        self.late = x.mean()
        return self.layer(x)  # type: ignore[no-any-return]


def test_buffers_that_grow_are_followed_by_the_average() -> None:
    model = Growing()
    step = TrainStep(model, sgd(model), cross_entropy, ema=0.5)
    kept = copy.deepcopy(step.state_dict())
    for size in (4, 8):
        losses_of(step, rows(1, size))
        assert torch.equal(step.average.seen, torch.ones(size))
        assert torch.equal(step.average.late, model.late)
    step.average.late = model.late = None
    step.load_state_dict(kept)
    assert torch.equal(step.average.seen, torch.zeros(1))


class Around(torch.optim.Optimizer):
    """An optimizer by name alone."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.base, self.param_groups, self.state = base, base.param_groups, base.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.base.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.base.zero_grad(set_to_none)


def test_a_wrapper_without_hooks_is_stepped() -> None:
    model, own = pictures_net(), pictures_net()
    step = TrainStep(model, Around(sgd(model)), cross_entropy)
    assert losses_of(step, pictures()) == by_hand(own, sgd(own), pictures())
    with pytest.raises(UsageError, match=r"Around without the hooks of torch's"):
        TrainStep(model, Around(sgd(model)), cross_entropy, precision="fp16")


class Batch(dict[str, torch.Tensor]):
    @property
    def images(self) -> torch.Tensor:
        return self["images"]


@pytest.mark.parametrize("options", [{"channels_last": True}, {"micro_batch": 2}])
def test_batches_stay_of_their_own_class(options: Any) -> None:
    def loss_fn(model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch.images), batch["labels"])

    images, labels = pictures()[0]
    model, own = pictures_net(), pictures_net()
    step = TrainStep(model, sgd(model), loss_fn, **options)
    given = Batch(images=images, labels=labels)
    other = TrainStep(own, sgd(own), cross_entropy, **options)
    assert float(step(given)) == float(other((images, labels)))
    assert not given.images.is_contiguous(memory_format=torch.channels_last)
