"""`channels-last`: how weights and pictures lie, and models that need the usual order."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.run.fix import Situation
from slipstream.run.fixes import channels_last
from tests.run.loop_kit import situation


class Net(nn.Module):
    def __init__(self, *, flat: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Conv2d(8, 4, 1)
        self.seen: list[bool] = []
        self.flat = flat

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        self.seen.append(pictures.is_contiguous(memory_format=torch.channels_last))
        pictures = nn.functional.dropout(pictures, 0.1, self.training)
        made: torch.Tensor = self.last(self.norm(self.first(pictures)).relu())
        return made.view(made.shape[0], -1) if self.flat else made


@contextmanager
def fixed() -> Iterator[Situation]:
    found = situation()
    undo = channels_last.apply(found)
    try:
        yield found
    finally:
        undo()
    assert found.failures == {}


def passes(net: Any, count: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(4)
    return [net(torch.randn(2, 3, 8, 8)) for _ in range(count)]


def is_last(weight: torch.Tensor) -> bool:
    return weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


def test_weights_and_pictures_lie_so_and_all_is_put_back() -> None:
    net = Net()
    plain = copy.deepcopy(net)
    strides = [p.stride() for p in net.parameters()]
    parameters = list(net.parameters())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with fixed() as found:
        made = passes(net)
        assert all(net.seen)
        assert is_last(net.first.weight)
        assert all(result.is_contiguous() for result in made)  # as the script expects them
        torch.testing.assert_close(made, passes(plain), rtol=1e-4, atol=1e-5)
        made[0].sum().backward()
        optimizer.step()
        assert found.notes
    assert [p.stride() for p in net.parameters()] == strides
    assert all(one is other for one, other in zip(net.parameters(), parameters, strict=True))
    net.seen.clear()
    passes(net)
    assert not any(net.seen)


def test_a_model_that_needs_the_usual_order_is_left_alone_and_nothing_is_lost() -> None:
    """Its first call has drawn random numbers and counted in its batch norm before it fails."""
    net = Net(flat=True)
    plain = copy.deepcopy(net)
    expected = passes(plain)
    with fixed() as found:
        made = passes(net)
        assert net.first.weight.is_contiguous()
        assert net.seen == [True, False, False, False]
    assert all(torch.equal(one, other) for one, other in zip(made, expected, strict=True))
    assert torch.equal(net.norm.running_mean, plain.norm.running_mean)
    assert int(net.norm.num_batches_tracked) == 3
    assert any("left alone" in line for line in found.notes["channels-last"])


def test_a_model_that_needs_it_later_is_put_back_then() -> None:
    net = Net()
    with fixed():
        passes(net, 1)
        net.flat = True
        net.eval()
        assert passes(net, 1)[0].ndim == 2
        assert net.first.weight.is_contiguous()


def test_models_without_pictures_are_left_alone() -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    with fixed() as found:
        net(torch.randn(2, 4))
        nn.Conv1d(2, 2, 1)(torch.randn(1, 2, 5))
        assert not found.notes


def test_an_error_of_the_script_is_its_own() -> None:
    with fixed(), pytest.raises(RuntimeError, match="channels"):
        Net()(torch.randn(2, 5, 8, 8))


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "class": "Net", "convolutions": 2, "channels_last_weights": 0, "is_distributed": False,
        "inputs": [{"shape": [2, 3, 8, 8]}], **changes,
    }  # fmt: skip


def test_it_applies_where_it_was_measured_to_be_faster() -> None:
    models = {"models": [facts()]}
    faster = {"name": "channels-last", "now_ms": [2.0] * 9, "then_ms": [1.0] * 9}
    slower = {**faster, "then_ms": [3.0] * 9}
    assert channels_last.applies(situation(model=models, replays=[faster]))[0]
    assert not channels_last.applies(situation(model=models, replays=[slower]))[0]
    assert not channels_last.applies(situation(model=models))[0]
    assert channels_last.applies(situation(model=models, clock="device"))[0]
    done = {"models": [facts(channels_last_weights=2)]}
    assert not channels_last.applies(situation(model=done, replays=[faster]))[0]
