"""`autocast`: what computes in bfloat16, and what the script sees of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from slipstream.run.fix import Situation
from slipstream.run.fixes import autocast
from tests.run.loop_kit import situation


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 1)
        self.seen: list[torch.dtype] = []

    def forward(self, given: torch.Tensor) -> Any:
        hidden = self.one(given)
        self.seen.append(hidden.dtype)
        return {"made": self.two(hidden.relu()), "hidden": [hidden]}


@contextmanager
def fixed() -> Iterator[Situation]:
    found = situation()
    undo = autocast.apply(found)
    try:
        yield found
    finally:
        undo()
    assert found.failures == {}


def train(net: Any, steps: int = 6) -> list[float]:
    torch.manual_seed(2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        made = net(torch.randn(16, 8))
        assert made["made"].dtype == made["hidden"][0].dtype == torch.float32
        loss = (made["made"] - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad.dtype == torch.float32 for p in net.parameters())
        losses.append(loss.item())
        optimizer.step()
    return losses


def make() -> Net:
    torch.manual_seed(1)
    return Net()


def test_learning_computes_in_bfloat16_and_the_script_sees_float32() -> None:
    expected = train(make())
    net = make()
    with fixed():
        losses = train(net)
        assert set(net.seen) == {torch.bfloat16}
    assert losses == pytest.approx(expected, rel=0.02)
    assert losses != expected
    net.seen.clear()
    train(net, 1)
    assert net.seen == [torch.float32]  # undone


def test_evaluation_stays_as_it_is() -> None:
    net = make()
    with fixed():
        net.eval()
        net(torch.randn(2, 8))
        net.train()
        with torch.no_grad():
            net(torch.randn(2, 8))
        assert net.seen == [torch.float32] * 2


@pytest.mark.parametrize("way", ["autocast", "scaler"])
def test_scripts_that_choose_themselves_are_left_alone(way: str) -> None:
    net = make()
    with fixed() as found:
        if way == "scaler":
            torch.amp.GradScaler("cpu")
        else:
            with torch.autocast("cpu", dtype=torch.float16):
                net(torch.randn(2, 8))
            assert net.seen == [torch.float16]
            net.seen.clear()
        net(torch.randn(2, 8))
        assert net.seen == [torch.float32]
        assert "off" in found.notes["autocast"][0]


class Attends(nn.Module):
    """Says in what type its attention was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 24), nn.Linear(8, 1)
        self.seen: list[torch.dtype] = []

    def forward(self, given: torch.Tensor, mask: Any = None) -> torch.Tensor:
        query, key, value = self.one(given).chunk(3, -1)
        made = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        self.seen.append(made.dtype)
        return self.two(made)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("keys", "dtype"), [(64, torch.float32), (256, torch.bfloat16)])
def test_attention_over_few_keys_stays_in_float32(keys: int, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    net = Attends()
    given, mask = torch.randn(2, keys, 8), torch.randn(keys, keys)
    expected = net(given, mask)
    with fixed():
        made = net(given, mask)
        assert made.dtype == torch.float32 and net.seen.pop() == dtype
        made.sum().backward()
        with torch.no_grad():
            net(given)
        assert net.seen.pop() == torch.float32  # evaluation is as it was
    assert torch.allclose(made, expected, atol=0.05)
    assert net.one.weight.grad is not None and net.one.weight.grad.dtype == torch.float32


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, given: torch.Tensor) -> Any:
        return self.head(checkpoint(self.layer, given, use_reentrant=False))


def test_attention_in_a_checkpoint_is_made_again_as_it_was() -> None:
    net = Checkpointed()
    with fixed():
        net(torch.randn(2, 10, 16)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


class Double(Attends):
    def forward(self, given: torch.Tensor, mask: Any = None) -> torch.Tensor:
        query = self.one(given).double()
        self.seen.append(nn.functional.scaled_dot_product_attention(query, query, query).dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            query = self.one(given)
            self.seen.append(nn.functional.scaled_dot_product_attention(query, query, query).dtype)
        return self.two(query[..., :8])  # type: ignore[no-any-return]


def test_attention_of_other_types_and_in_precisions_of_the_script_is_torchs() -> None:
    net = Double()
    with fixed() as found:
        net(torch.randn(2, 10, 8))
        assert net.seen == [torch.float64, torch.bfloat16]
        assert found.failures == {}


def test_torchs_attention_is_replaced_in_calls_alone() -> None:
    before = nn.functional.scaled_dot_product_attention
    with fixed():
        train(make(), 1)
        assert nn.functional.scaled_dot_product_attention is before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself
def test_models_with_attention_are_compiled_once() -> None:
    net = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    torch._dynamo.reset()
    made = torch.compile(net, backend="eager")
    seen = []
    with fixed():
        for _ in range(3):
            made(torch.randn(2, 10, 16)).sum().backward()
            seen.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert seen[0] == seen[-1]


def test_models_of_other_types_are_left_alone() -> None:
    net = make().double()
    with fixed():
        net(torch.randn(2, 8, dtype=torch.float64))
        assert net.seen == [torch.float64]


class Result:
    def __init__(self, made: torch.Tensor) -> None:
        self.made = made


class Hides(Net):
    def forward(self, given: torch.Tensor) -> Any:
        return Result(super().forward(nn.functional.dropout(given, 0.5))["made"])


def test_results_that_cannot_be_looked_into_are_made_again() -> None:
    torch.manual_seed(0)
    net = Hides()
    torch.manual_seed(6)
    expected = [net(torch.ones(2, 8)).made for _ in range(3)]
    with fixed() as found:
        torch.manual_seed(6)
        made = [net(torch.ones(2, 8)).made for _ in range(3)]
        assert found.notes
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


def test_where_it_applies() -> None:
    facts = {"class": "Net", "trainable": 2, "dtypes": ["float32"], "modes": {}}
    assert autocast.applies(situation(clock="device", model={"models": [facts]}))[0]
    own = {**facts, "modes": {"train": {"autocast": 3}}}
    assert not autocast.applies(situation(clock="device", model={"models": [own]}))[0]
    half = {**facts, "dtypes": ["float16"]}
    assert not autocast.applies(situation(clock="device", model={"models": [half]}))[0]
    slower = [{"name": "amp", "now_ms": [1.0] * 9, "then_ms": [2.0] * 9}]
    known = situation(clock="device", model={"models": [facts]}, replays=slower)
    assert not autocast.applies(known)[0]
