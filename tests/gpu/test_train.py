"""Training steps on a real GPU: fp16 with a scaler, TF32, cuDNN's measurements, memory, and the
search over all of it.
"""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import slipstream
from slipstream.memory import leak_of, peak_of
from slipstream.train.choices import Choices
from slipstream.train.code import code_of
from slipstream.train.equivalence import equivalence
from slipstream.train.reference import reference_of
from slipstream.train.step import TrainStep
from slipstream.train.subject import Subject

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def make(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(32, 10),
    ]  # fmt: skip
    return nn.Sequential(*layers).cuda()


def batches(count: int = 8) -> list[Any]:
    own = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(32, 3, 32, 32, generator=own).cuda(),
            torch.randint(0, 10, (32,), generator=own).cuda(),
        )
        for _ in range(count)
    ]


def loss_fn(model: Any, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


CHOICES = [
    Choices(), Choices("fused"), Choices(set_to_none=False), Choices(channels_last=True),
    Choices(cudnn_benchmark=True), Choices(precision="tf32"), Choices(precision="bf16"),
    Choices(precision="fp16"), Choices("fused", precision="fp16", channels_last=True),
]  # fmt: skip


@pytest.mark.parametrize("choices", CHOICES, ids=lambda choices: choices.name)
def test_switches_are_the_same_step(choices: Choices) -> None:
    model = make()
    subject = Subject(model, adamw(model), loss_fn, tuple(batches(4)), Choices())
    reference = reference_of(subject)
    assert reference.is_double
    assert equivalence(subject.build(choices), reference)[0] is None


def test_dropout_is_compared_without_double_precision_if_need_be() -> None:
    model = make(dropout=0.3)
    subject = Subject(model, adamw(model), loss_fn, tuple(batches(4)), Choices())
    reference = reference_of(subject)
    assert reference.draws
    assert equivalence(subject.build(Choices("fused")), reference)[0] is None


@pytest.mark.parametrize("fused", [False, True])
def test_overflows_are_skipped_and_counted(fused: bool) -> None:
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    step = TrainStep(model, optimizer, loss_fn, precision="fp16")
    before = copy.deepcopy(list(model.parameters()))
    images, labels = batches(1)[0]
    step((images * 1e30, labels))
    assert step.skipped == 1
    assert all(map(torch.equal, before, model.parameters()))
    step((images, labels))
    assert step.skipped == 1
    assert not all(map(torch.equal, before, model.parameters()))


def test_the_code_trains_as_the_step_does() -> None:
    choices = Choices("fused", precision="fp16", channels_last=True, clip_norm=0.1, micro_batch=8)
    model, own = make(), make()
    space: dict[str, Any] = {}
    exec(code_of(choices, "cuda"), space)
    step = TrainStep(model, adamw(model), loss_fn, **choices.as_dict())
    plain = space["make_step"](own, adamw(own), loss_fn)
    for batch in batches():
        one, other = float(step(batch)), float(plain(batch))
        assert one == pytest.approx(other, rel=1e-3), "cuDNN may choose other algorithms"


def test_flags_are_put_back() -> None:
    model = make()
    before = (torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32)
    step = TrainStep(model, adamw(model), loss_fn, precision="tf32", cudnn_benchmark=True)
    step(batches(1)[0])
    assert (torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32) == before


def test_memory_is_of_its_call_alone() -> None:
    device = torch.device("cuda")
    large, small = (
        peak_of(lambda size=size: torch.ones(size << 18, device=device), device)  # type: ignore[misc]
        for size in (300, 10)
    )
    assert large.bytes == 300 << 20
    assert small.bytes == 10 << 20
    assert small.headroom is not None
    assert 0 < small.headroom < 1
    kept: list[torch.Tensor] = []
    assert leak_of(lambda: kept.append(torch.ones(1 << 20, device=device)), device) == 4 << 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_a_step_is_tuned_and_the_callers_stays() -> None:
    model = make()
    optimizer = adamw(model)
    before = copy.deepcopy(model.state_dict())
    rng = torch.cuda.get_rng_state()
    recipe = slipstream.tune_step(
        model, loss_fn, optimizer, batches(), accuracy="mixed", budget_s=60.0
    )
    print(recipe)
    assert all(row.state != "failed" for row in recipe.rows if "compile" not in row.name)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.cuda.get_rng_state(), rng)
    assert "As written, TF32 is" in str(recipe)
    step = recipe.apply(model, optimizer, loss_fn)
    assert step(batches(1)[0]).isfinite()
