"""Which calls of modules are the script's own."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.run.fix import Situation
from slipstream.run.outermost import Outermost, Tries
from tests.run.loop_kit import situation


@pytest.fixture
def seen() -> Iterator[list[str]]:
    names: list[str] = []

    def around(module: Any, call: Any, args: Any, kwargs: Any) -> Any:
        names.append(type(module).__name__)
        return call(*args, **kwargs)

    outermost = Outermost(around)
    outermost.start()
    yield names
    outermost.undo()
    names.clear()
    nn.Linear(2, 2)(torch.ones(1, 2))
    assert not names


def test_models_and_not_their_parts_nor_losses(seen: list[str]) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    made = net(torch.ones(1, 2))
    nn.MSELoss()(made, made.detach())
    nn.Linear(2, 1)(made)
    assert seen == ["Sequential", "Linear"]


def test_a_call_that_fails_is_over(seen: list[str]) -> None:
    net = nn.Linear(2, 2)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            net(torch.ones(1, 3))
    assert seen == ["Linear"] * 2


class DistributedDataParallel(nn.Module):
    """As torch's, by its name: it calls the module inside."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, given: torch.Tensor) -> Any:
        return self.module(given)


def test_nothing_inside_of_models_of_several_processes(seen: list[str]) -> None:
    DistributedDataParallel(nn.Linear(2, 2))(torch.ones(1, 2))
    assert seen == []


def test_a_new_way_that_fails_is_tried_once_for_each_kind_of_call() -> None:
    known: Situation = situation()
    tries, net = Tries(known, "fix"), nn.Linear(2, 2)
    calls: list[str] = []

    def new() -> str:
        calls.append("new")
        torch.rand(3)
        raise ValueError("no such thing")

    def old() -> float:
        calls.append("old")
        return torch.rand(1).item()

    torch.manual_seed(0)
    expected = torch.rand(1).item()
    torch.manual_seed(0)
    for shape in ((1, 2), (1, 2), (3, 2)):
        made = tries.call(net, new, old, torch.ones(shape))
        if shape == (1, 2) and len(calls) == 2:
            assert made == expected  # what the new way had drawn is put back
    assert calls == ["new", "old", "old", "new", "old"]
    assert "no such thing" in known.notes["fix"][0]
    assert known.failures == {}
