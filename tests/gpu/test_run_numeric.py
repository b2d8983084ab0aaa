"""Fixes that round differently on a real GPU: the same training, and nothing left behind."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.doctor.capture import Capture
from slipstream.run.fix import Situation
from slipstream.run.fixes import (
    autocast,
    channels_last,
    compile_model,
    cudnn_benchmark,
    fold_batchnorm,
    fused_optimizer,
    tf32,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@contextmanager
def fixed(*modules: Any) -> Iterator[Situation]:
    found = Situation({"findings": []}, Capture("train.py", {}, "", clock="device"))
    undo = [module.apply(found) for module in modules]
    try:
        yield found
    finally:
        for take_away in reversed(undo):
            take_away()
    assert found.failures == {}


def make() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ]  # fmt: skip
    return nn.Sequential(*layers).cuda()


def train(net: nn.Module, name: str = "SGD", steps: int = 12) -> tuple[list[float], Any]:
    torch.manual_seed(1)
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        pictures = torch.randn(16, 3, 32, 32).cuda()
        targets = torch.randint(0, 10, (16,)).cuda()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(pictures), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, optimizer


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_optimizers(name: str) -> None:
    expected, plain = train(make(), name)
    with fixed(fused_optimizer):
        losses, optimizer = train(make(), name)
        group = optimizer.param_groups[0]
        assert group.get("fused") or group["foreach"]
        saved = optimizer.state_dict()
    assert losses == pytest.approx(expected, rel=0.02)
    assert saved["param_groups"] == plain.state_dict()["param_groups"]
    for key, state in plain.state_dict()["state"].items():
        for entry, value in state.items():
            mine = saved["state"][key][entry]
            assert (mine.device, mine.dtype) == (value.device, value.dtype), entry
    net = make()
    again = getattr(torch.optim, name)(net.parameters(), lr=0.01)
    again.load_state_dict(copy.deepcopy(saved))
    net(torch.randn(4, 3, 32, 32).cuda()).sum().backward()
    again.step()
    with fixed(fused_optimizer):
        again.load_state_dict(copy.deepcopy(saved))
        again.step()
        state = again.state_dict()["state"].get(0, {})  # plain SGD has none
        assert float(state.get("step", 13.0)) == 13.0


def test_a_scaler_and_the_fused_form() -> None:
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    with fixed(fused_optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(torch.randn(4, 3, 32, 32).cuda()).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert optimizer.param_groups[0]["fused"]
    assert all(bool(p.isfinite().all()) for p in net.parameters())


@pytest.mark.parametrize(
    ("modules", "close"),
    [
        ((channels_last,), 0.02),
        ((autocast,), 0.05),
        ((tf32,), 0.02),
        ((cudnn_benchmark,), 0.02),
        ((fused_optimizer, channels_last, cudnn_benchmark, tf32, autocast), 0.05),
    ],
)
def test_losses_stay(modules: tuple[Any, ...], close: float) -> None:
    expected, _ = train(make())
    net = make()
    strides = [p.stride() for p in net.parameters()]
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    with fixed(*modules) as found:
        losses, _ = train(net)
        if channels_last in modules:
            assert found.notes["channels-last"]
    assert losses == pytest.approx(expected, rel=close)
    assert [p.stride() for p in net.parameters()] == strides
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark) == before


def test_autocast_computes_in_bfloat16() -> None:
    net = make()
    seen = []
    net[3].register_forward_hook(lambda module, given, made: seen.append(made.dtype))
    with fixed(autocast):
        train(net, steps=2)
    assert seen == [torch.bfloat16] * 2


def test_folded_evaluation() -> None:
    net = make()
    train(net, steps=3)
    net.eval()
    torch.manual_seed(2)
    pictures = torch.randn(8, 3, 32, 32).cuda()
    with torch.no_grad():
        expected = net(pictures)
        with fixed(fold_batchnorm) as found:
            made = [net(pictures) for _ in range(4)]
            assert "2 in Sequential" in found.notes["fold-batchnorm"][0]
    torch.testing.assert_close(made[-1], expected, rtol=1e-2, atol=1e-3)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_compiled() -> None:
    pytest.importorskip("triton")
    expected, _ = train(make())
    with fixed(compile_model) as found:
        losses, _ = train(make())
        assert found.notes["compile"] == ["Sequential"]
    assert losses == pytest.approx(expected, rel=0.02)
