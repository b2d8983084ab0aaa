"""`compile`: models are compiled in place where they learn, and fall back."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.run.fix import Situation
from slipstream.run.fixes import compile_model
from tests.run.loop_kit import situation


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        self.calls_as_written = 0

    def forward(self, given: torch.Tensor) -> Any:
        if not torch.compiler.is_compiling():
            self.calls_as_written += 1
        return self.layers(given)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Traced as ever, and run without generating code, which takes long."""
    made: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(len(graph.graph.nodes))
        return graph.forward

    own = torch.compile
    monkeypatch.setattr(torch, "compile", functools.partial(own, backend=backend))
    torch._dynamo.reset()
    yield made
    torch._dynamo.reset()


@contextmanager
def fixed() -> Iterator[Situation]:
    found = situation()
    undo = compile_model.apply(found)
    try:
        yield found
    finally:
        undo()
    assert found.failures == {}


def train(net: nn.Module, steps: int = 5) -> list[float]:
    torch.manual_seed(2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(16, 8)).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def make() -> Net:
    torch.manual_seed(1)
    return Net()


def test_one_graph_in_place_and_undone(graphs: list[int]) -> None:
    expected = train(make())
    net = make()
    with fixed() as found:
        assert train(net) == pytest.approx(expected, rel=1e-5)
        assert len(graphs) == 1
        assert found.notes == {"compile": ["Net"]}
        assert type(net) is Net
        assert "layers.0.weight" in net.state_dict()
    assert net._compiled_call_impl is None
    train(net)
    assert len(graphs) == 1 and net.calls_as_written == 5


def test_evaluation_runs_as_written(graphs: list[int]) -> None:
    net = make()
    with fixed():
        train(net, 2)
        compiled = len(graphs)
        net.eval()
        net(torch.randn(3, 8))
        with torch.no_grad():
            net.train()(torch.randn(3, 8))
        assert len(graphs) == compiled
        assert net.calls_as_written == 2


def test_what_cannot_be_compiled_runs_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no such tool")

    own = torch.compile
    monkeypatch.setattr(torch, "compile", functools.partial(own, backend=broken))
    torch._dynamo.reset()
    expected = train(make())
    with fixed():
        assert train(make()) == expected
    torch._dynamo.reset()


def test_an_error_of_the_script_is_its_own(graphs: list[int]) -> None:
    with fixed(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        make()(torch.randn(3, 5))


def test_compiled_models_are_left_alone(graphs: list[int]) -> None:
    net = make()
    net.layers.compile()
    with fixed() as found:
        train(net, 2)
        assert not found.notes
    assert net.layers._compiled_call_impl is not None


def test_where_it_applies() -> None:
    facts = {"class": "Net", "trainable": 4, "compiled": False, "is_distributed": False}
    assert compile_model.applies(situation(model={"models": [facts]}))[0]
    for change in ({"compiled": True}, {"is_distributed": True}, {"trainable": 0}):
        assert not compile_model.applies(situation(model={"models": [{**facts, **change}]}))[0]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_with_generated_code() -> None:
    expected = train(make())
    with fixed():
        assert train(make()) == pytest.approx(expected, rel=1e-4)
