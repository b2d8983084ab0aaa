"""`fused-optimizer`: which form steps take, and that nothing else changes."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from slipstream.run.fix import Situation
from slipstream.run.fixes import fused_optimizer
from slipstream.run.optimizers import Switched
from tests.run.loop_kit import situation

OPTIMIZERS = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01, "amsgrad": True},
    "Adagrad": {"lr": 0.05},
    "RMSprop": {"lr": 0.01},
    "NAdam": {"lr": 0.01},
}


def replay(way: str, now: float, then: float) -> dict[str, Any]:
    return {"name": f"optimizer-{way}", "now_ms": [now] * 5, "then_ms": [then] * 5}


@contextmanager
def fixed() -> Iterator[Situation]:
    found = situation(replays=[replay("fused", 2.0, 1.0)])
    undo = fused_optimizer.apply(found)
    try:
        yield found
    finally:
        undo()
    assert found.failures == {}


@pytest.fixture
def known() -> Iterator[Situation]:
    with fixed() as found:
        yield found


def switched(known: Situation) -> Switched:
    return Switched(
        known, fused_optimizer.NAME, fused_optimizer._may_be_switched, fused_optimizer.can_be_fused
    )


def model() -> torch.nn.Sequential:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)]
    return torch.nn.Sequential(*layers)


def train(
    net: torch.nn.Module, optimizer: Any, steps: int = 12, seed: int = 5, clear: bool = True
) -> list[float]:
    torch.manual_seed(seed)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=clear)
        loss = net(torch.randn(16, 8)).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def make(name: str, net: torch.nn.Module, **changes: Any) -> Any:
    return getattr(torch.optim, name)(net.parameters(), **{**OPTIMIZERS[name], **changes})


def as_written(name: str, **changes: Any) -> tuple[list[float], Any]:
    """Without the fix: losses, and what would be saved."""
    net = model()
    optimizer = make(name, net, **changes)
    return train(net, optimizer), optimizer.state_dict()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_all_parameters_at_once_and_the_same_losses_but_for_rounding(name: str) -> None:
    expected, saved = as_written(name)
    net = model()
    optimizer = make(name, net)
    with fixed():
        losses = train(net, optimizer)
        way = "fused" if name in ("SGD", "Adam", "AdamW", "Adagrad") else "foreach"
        assert optimizer.param_groups[0][way] is True
        assert losses == pytest.approx(expected, rel=1e-4)
        mine = optimizer.state_dict()
    assert mine["param_groups"] == saved["param_groups"]
    for key, state in saved["state"].items():
        for name_of, value in state.items():
            torch.testing.assert_close(mine["state"][key][name_of], value, rtol=1e-3, atol=1e-5)
    assert optimizer.param_groups[0][way] is None
    assert train(net, optimizer)  # goes on without


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_checkpoints_go_both_ways(name: str) -> None:
    net = model()
    optimizer = make(name, net)
    train(net, optimizer, 6)
    weights, saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    expected = train(net, optimizer, 6, seed=9)

    again = model()
    again.load_state_dict(weights)
    other = make(name, again)
    with fixed():
        other.load_state_dict(saved)
        losses = train(again, other, 6, seed=9)
        assert other.param_groups[0]["fused"] is True
        assert losses == pytest.approx(expected, rel=1e-4)
        mine, mine_weights = copy.deepcopy((other.state_dict(), again.state_dict()))
        more = train(again, other, 6, seed=11)

    plain = model()
    plain.load_state_dict(mine_weights)
    third = make(name, plain)
    third.load_state_dict(mine)
    assert third.param_groups[0]["fused"] is None
    assert train(plain, third, 6, seed=11) == pytest.approx(more, rel=1e-3)


def test_schedulers_and_later_groups(known: Situation) -> None:
    net, late = model(), torch.nn.Linear(8, 8)
    optimizer = make("Adam", net)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.1)
    train(net, optimizer, 4)
    scheduler.step()
    optimizer.add_param_group({"params": list(late.parameters())})
    train(torch.nn.Sequential(late, net), optimizer, 2)
    assert [group["fused"] for group in optimizer.param_groups] == [True, True]


def test_a_scaler_works(known: Situation) -> None:
    net = model()
    optimizer = make("SGD", net)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = net[0].weight.detach().clone()
    scaler.scale(net(torch.randn(4, 8)).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert optimizer.param_groups[0]["fused"] is True
    assert not torch.equal(net[0].weight, before)


def test_gradients_in_another_order_are_not_fused(known: Situation) -> None:
    """The fused form would add them to the wrong elements, and not say so."""
    weight = torch.nn.Parameter(torch.zeros(3, 4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.arange(12.0).view(4, 3).t()
    optimizer.step()
    assert torch.equal(weight.detach(), -weight.grad)
    assert not optimizer.param_groups[0]["fused"]
    weight.grad = weight.grad.contiguous()
    optimizer.step()
    assert optimizer.param_groups[0]["fused"]
    assert torch.equal(weight.detach(), -2 * weight.grad)


def test_parameters_that_get_gradients_later(known: Situation) -> None:
    """Some have a momentum by then, others do not: the fused form of SGD cannot."""
    one, two = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4))
    plain = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
    optimizer = torch.optim.SGD([one, two], lr=0.1, momentum=0.9)
    alike = torch.optim.SGD(plain, lr=0.1, momentum=0.9, foreach=True)
    for step in range(5):
        for pair in ((one, two), plain):
            pair[0].grad = torch.ones(4)
            pair[1].grad = None if step < 2 else torch.ones(4)
        optimizer.step()
        alike.step()
    torch.testing.assert_close(one, plain[0])
    torch.testing.assert_close(two, plain[1])


@pytest.mark.parametrize(
    "changes", [{"foreach": True}, {"fused": False}, {"differentiable": True}, {"capturable": True}]
)
def test_what_the_script_chose_is_left_alone(known: Situation, changes: dict[str, Any]) -> None:
    net = model()
    if "capturable" in changes:
        optimizer = make("Adam", net)
        optimizer.param_groups[0].update(changes)
        switched(known).before_step(optimizer, (), {})
    else:
        optimizer = make("Adam", net, **changes)
        if "differentiable" not in changes:
            train(net, optimizer, 2)
        switched(known).before_step(optimizer, (), {})
    group = optimizer.param_groups[0]
    assert (group["foreach"], group["fused"]) == (changes.get("foreach"), changes.get("fused"))


def test_a_loop_that_was_asked_for_is_fused_or_stays(known: Situation) -> None:
    """Lists of tensors take memory that the script may have wanted to save."""
    for name, fused in (("Adam", True), ("RMSprop", None)):
        net = model()
        optimizer = make(name, net, foreach=False)
        train(net, optimizer, 2)
        group = optimizer.param_groups[0]
        assert group.get("fused") is fused
        assert group["foreach"] is (None if fused else False)
        assert optimizer.state_dict()["param_groups"][0]["foreach"] is False


def test_sparse_gradients_go_the_way_they_did(known: Situation) -> None:
    table = torch.nn.Embedding(9, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    table(torch.randint(0, 9, (5,))).sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["foreach"] is None
    assert not optimizer.param_groups[0]["fused"]


def test_classes_of_the_script_are_left_alone(known: Situation) -> None:
    class Own(torch.optim.Adam):
        pass

    net = model()
    optimizer = Own(net.parameters(), lr=0.01)
    train(net, optimizer, 2)
    assert optimizer.param_groups[0]["fused"] is None


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "class": "Adam", "is_torchs": True, "foreach": None, "fused": None, "capturable": False,
        "parameters": 40, "device": "cpu", **changes,
    }  # fmt: skip


def test_it_applies_where_the_choice_is_open_and_another_way_was_not_slower() -> None:
    fused = [replay("fused", 2.0, 1.0), replay("foreach", 2.0, 1.5)]
    assert fused_optimizer.applies(situation(optimizers=[entry()], replays=fused))[0]
    # The other way gives the same results, and is a fix of its own.
    assert not fused_optimizer.applies(situation(optimizers=[entry()]))[0]
    other = entry(**{"class": "NAdam"})
    assert fused_optimizer.applies(situation(optimizers=[other]))[0]
    assert not fused_optimizer.applies(situation(optimizers=[entry(fused=True)]))[0]
    assert not fused_optimizer.applies(situation(optimizers=[entry(is_torchs=False)]))[0]
    slower = [replay("fused", 1.0, 2.0), replay("foreach", 1.0, 1.5)]
    assert not fused_optimizer.applies(situation(optimizers=[entry()], replays=slower))[0]
    faster = [replay("fused", 1.0, 2.0), replay("foreach", 1.0, 0.5)]
    assert fused_optimizer.best_way(situation(optimizers=[entry()], replays=faster)) == "foreach"
    assert fused_optimizer.best_way(situation()) == "foreach"
    both = [replay("fused", 2.0, 1.5), replay("foreach", 2.0, 1.0)]
    assert fused_optimizer.best_way(situation(optimizers=[entry()], replays=both)) == "fused"
    other = entry(**{"class": "NAdam"})
    assert fused_optimizer.best_way(situation(optimizers=[other], replays=both)) == "foreach"
    assert fused_optimizer.best_way(situation(clock="device")) == "fused"


def test_steps_are_counted_in_full_where_numbers_are_short_by_default() -> None:
    net = model()
    optimizer = make("Adam", net)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with fixed():
            optimizer.state.clear()
            for _ in range(303):
                for parameter in net.parameters():
                    parameter.grad = torch.ones_like(parameter)
                optimizer.step()
            assert optimizer.param_groups[0]["fused"] is True
            saved = optimizer.state_dict()["state"][0]["step"]
            assert saved.dtype == torch.float32 and saved.item() == 303
        kept = optimizer.state[optimizer.param_groups[0]["params"][0]]["step"]
        assert kept.dtype == torch.float32 and kept.item() == 303
    finally:
        torch.set_default_dtype(torch.float32)
