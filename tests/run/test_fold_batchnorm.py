"""`fold-batchnorm`: evaluation with folded weights that are never stale."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.run.fix import Situation
from slipstream.run.fixes import fold_batchnorm
from tests.run.loop_kit import situation


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.norm(self.conv(given)).relu() + given
        return made


def make() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), Block(), Block())
    for _ in range(3):
        net(torch.randn(8, 3, 12, 12) * 2 + 1)
    return net.eval()


@contextmanager
def fixed() -> Iterator[Situation]:
    found = situation()
    undo = fold_batchnorm.apply(found)
    try:
        yield found
    finally:
        undo()
    assert found.failures == {}


@contextmanager
def counted(net: nn.Module) -> Iterator[list[int]]:
    """How many batch norms were really computed."""
    count = [0]
    original = nn.functional.batch_norm

    def batch_norm(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return original(*args, **kwargs)

    nn.functional.batch_norm = batch_norm
    try:
        yield count
    finally:
        nn.functional.batch_norm = original


def evaluate(net: nn.Module, seed: int = 1) -> torch.Tensor:
    torch.manual_seed(seed)
    with torch.no_grad():
        made: torch.Tensor = net(torch.randn(4, 3, 12, 12))
    return made


def test_evaluation_computes_no_batch_norms_and_gives_the_same_but_for_rounding() -> None:
    net = make()
    expected = evaluate(net)
    with fixed() as found, counted(net) as norms:
        results = [evaluate(net) for _ in range(2)]
        assert norms == [6]  # the first calls look and compare
        results += [evaluate(net) for _ in range(3)]
        assert norms == [6]
        assert "3 in Sequential" in found.notes["fold-batchnorm"][0]
        assert not any("forward" in vars(part) for part in net.modules())
    for made in results:
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(evaluate(net), expected)


def _step(net: nn.Module) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net.train()
    net(torch.randn(4, 3, 12, 12)).square().mean().backward()
    optimizer.step()
    net.eval()


def _load(net: nn.Module) -> None:
    net.load_state_dict({name: value * 1.5 for name, value in net.state_dict().items()})


def _average(net: nn.Module) -> None:
    """As averages of weights are kept: behind torch's back, while something else learns."""
    other = nn.Parameter(torch.ones(2))
    other.grad = torch.ones(2)
    optimizer = torch.optim.SGD([other], lr=0.1)
    for parameter in net.parameters():
        parameter.data.mul_(1.5)
    optimizer.step()


def _swap(net: nn.Module) -> None:
    """As an average takes the place of the weights between two evaluations."""
    for parameter in net.parameters():
        parameter.data.copy_(1.5 * parameter.detach())


def _swap_statistics(net: nn.Module) -> None:
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None:
            part.running_mean.data.add_(1.5)


def _in_place(net: nn.Module) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.5)


@pytest.mark.parametrize("change", [_step, _load, _average, _swap, _swap_statistics, _in_place])
def test_weights_that_change_are_folded_anew(change: Any) -> None:
    net, plain = make(), make()
    with fixed() as found:
        before = [evaluate(net) for _ in range(3)][-1]
        torch.manual_seed(8)
        change(net)
        after = evaluate(net)
        assert found.notes
    torch.manual_seed(8)
    change(plain)
    torch.testing.assert_close(after, evaluate(plain), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(after, before, rtol=1e-3)


def _norms(net: nn.Module) -> list[nn.BatchNorm2d]:
    return [part for part in net.modules() if isinstance(part, nn.BatchNorm2d)]


def _eps(net: nn.Module) -> None:
    for norm in _norms(net):
        norm.eps = 1.0


def _array(net: nn.Module) -> None:
    weight = net.get_parameter("3.conv.weight").detach().numpy()
    weight *= -2


def _replace(net: nn.Module) -> None:
    net.get_submodule("3").norm = nn.BatchNorm2d(4).eval()


@pytest.mark.parametrize("change", [_eps, _array, _replace])
def test_what_no_version_tells_is_noticed(change: Any) -> None:
    net, plain = make(), make()
    with fixed():
        before = [evaluate(net) for _ in range(3)][-1]
        change(net)
        after = [evaluate(net) for _ in range(2)][-1]
    change(plain)
    torch.testing.assert_close(after, evaluate(plain), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(after, before, rtol=1e-3)


def test_norms_that_learn_alone_are_not_folded() -> None:
    """As they are adapted to other data: the model evaluates, its norms do not."""
    net, plain = make(), make()
    with fixed(), counted(net) as computed:
        for _ in range(3):
            evaluate(net)
        for part in _norms(net):
            part.train()
        adapted = [evaluate(net, seed) for seed in (2, 3)]
        torch.manual_seed(4)
        with torch.no_grad():
            net(torch.randn(2, 3, 12, 12))  # a shape that was not compared yet
        net.eval()
        count = computed[0]
        evaluate(net)
        assert computed[0] == count  # folded again
    for part in _norms(plain):
        part.train()
    assert all(
        torch.equal(made, evaluate(plain, seed)) for made, seed in zip(adapted, (2, 3), strict=True)
    )
    torch.manual_seed(4)
    with torch.no_grad():
        plain(torch.randn(2, 3, 12, 12))
    states = zip(net.state_dict().values(), plain.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in states)


@pytest.mark.parametrize("name", ["0", "1"])
def test_hooks_see_what_they_would_have(name: str) -> None:
    def features(net: nn.Module) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []

        def look(module: nn.Module, given: Any, made: torch.Tensor) -> None:
            seen.extend([given[0], made])

        handle = net.get_submodule(name).register_forward_hook(look)
        evaluate(net)
        handle.remove()
        return seen

    net = make()
    expected = features(net)
    with fixed(), counted(net) as computed:
        for _ in range(3):
            evaluate(net)
        seen = features(net)
        count = computed[0]
        evaluate(net)
        assert computed[0] == count
    assert all(torch.equal(one, other) for one, other in zip(seen, expected, strict=True))


def test_training_is_left_alone() -> None:
    net = make().train()
    with fixed() as found, counted(net) as norms:
        for _ in range(4):
            net(torch.randn(4, 3, 12, 12))
        net.eval()
        for _ in range(4):
            net(torch.randn(4, 3, 12, 12))  # with gradients on: somebody may learn from it
        assert norms == [3 * 8]
        assert not found.notes


class Used(nn.Module):
    """What the convolution makes is used beside its batch norm, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        made = self.conv(given)
        result: torch.Tensor = self.norm(made) + made
        return result


def test_a_convolution_that_somebody_else_uses_is_left_alone() -> None:
    net = Used()
    for _ in range(3):
        net(torch.randn(8, 3, 12, 12) * 3 + 1)
    net.eval()
    expected = evaluate(net)
    with fixed() as found:
        for _ in range(4):
            assert torch.equal(evaluate(net), expected)
        assert "left alone" in found.notes["fold-batchnorm"][0]


class Speaking(Block):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        print("said")
        return super().forward(given)


def test_a_model_that_prints_is_not_called_twice(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), Speaking()).eval()
    with fixed():
        for _ in range(4):
            evaluate(net)
    assert capsys.readouterr().out == "said\n" * 4


def test_where_it_applies() -> None:
    faster = {"name": "folded", "now_ms": [2.0] * 9, "then_ms": [1.0] * 9, "folds": 3}
    assert fold_batchnorm.applies(situation(replays=[faster]))[0]
    slower = {**faster, "then_ms": [2.1] * 9}
    assert not fold_batchnorm.applies(situation(replays=[slower]))[0]
    assert not fold_batchnorm.applies(situation())[0]
