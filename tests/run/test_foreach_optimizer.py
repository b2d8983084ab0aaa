"""`foreach-optimizer`: the same bits, and what is left alone."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from slipstream.doctor.record.loop import _describe_optimizer
from slipstream.run.apply import apply_all
from slipstream.run.fix import Situation
from slipstream.run.fixes import foreach_optimizer, fused_optimizer, native_optimizer
from tests.run.loop_kit import situation

WAYS: dict[str, list[dict[str, Any]]] = {
    "SGD": [
        {}, {"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
        {"momentum": 0.9, "dampening": 0.1, "maximize": True},
    ],
    "Adam": [{}, {"weight_decay": 0.01}, {"amsgrad": True}, {"maximize": True}],
    "AdamW": [{}, {"amsgrad": True, "weight_decay": 0.1}, {"maximize": True}],
    "Adagrad": [{}, {"lr_decay": 0.01, "weight_decay": 0.01}, {"maximize": True}],
    "Adadelta": [{}, {"weight_decay": 0.01, "maximize": True}],
    "Adamax": [{}, {"weight_decay": 0.01, "maximize": True}],
    "RMSprop": [{}, {"momentum": 0.9, "centered": True}, {"weight_decay": 0.01}],
    "Rprop": [{}, {"maximize": True}],
}  # fmt: skip
SHAPES = ((8, 16), (16,), (33, 7), (1,), ())


@pytest.fixture
def known() -> Iterator[Situation]:
    found = situation()
    undo = foreach_optimizer.apply(found)
    yield found
    undo()
    assert found.failures == {}


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    made = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]
    picture = torch.randn(4, 3, 5, 5).to(dtype)
    return [*made, torch.nn.Parameter(picture.to(memory_format=torch.channels_last))]


def choice(optimizer: Any) -> Any:
    return optimizer.param_groups[0]["foreach"]


def train(optimizer: Any, steps: int = 24) -> list[torch.Tensor]:
    """Some get no gradient at times, some only zeros; the rate changes. All values at the end."""
    torch.manual_seed(1)
    ours = [p for group in optimizer.param_groups for p in group["params"]]
    for step in range(steps):
        for number, parameter in enumerate(ours):
            parameter.grad = torch.randn_like(parameter) * (number != 1 or step != 4)
            if number == 2 and step % 3 == 0:
                parameter.grad = None
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.99
    states = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [value for value in states if isinstance(value, torch.Tensor)]
    return [parameter.detach().clone() for parameter in ours] + copy.deepcopy(tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, ways in WAYS.items() for options in ways]
)
def test_the_same_bits(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    made = getattr(torch.optim, name)
    expected = train(made(parameters(dtype), lr=0.05, **options))
    found = situation()
    undo = foreach_optimizer.apply(found)
    optimizer = made(parameters(dtype), lr=0.05, **options)
    values = train(optimizer)
    assert choice(optimizer) is True
    assert len(values) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(values, expected, strict=True))
    assert optimizer.state_dict()["param_groups"][0]["foreach"] is None
    undo()
    assert choice(optimizer) is None
    assert found.notes == {foreach_optimizer.NAME: [f"{name}: foreach=True"]}


def test_all_that_is_equal_is_tested() -> None:
    assert set(WAYS) == set(foreach_optimizer.EQUAL)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64], ids=str)
def test_types_that_round_in_between_are_left_alone(known: Situation, dtype: torch.dtype) -> None:
    optimizer = torch.optim.SGD(parameters(dtype), lr=0.1, momentum=0.9)
    train(optimizer, 2)
    assert choice(optimizer) is None


def test_optimizers_that_compute_in_another_way_are_left_alone(known: Situation) -> None:
    for made in (torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD):
        optimizer = made(parameters(), lr=0.1)
        train(optimizer, 2)
        assert choice(optimizer) is None


@pytest.mark.parametrize("options", [{"foreach": False}, {"fused": True}, {"fused": False}])
def test_what_the_script_chose_is_left_alone(known: Situation, options: dict[str, Any]) -> None:
    optimizer = torch.optim.Adam(parameters(), lr=0.1, **options)
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert choice(optimizer) is options.get("foreach")


def test_parameters_that_share_memory_are_left_alone(known: Situation) -> None:
    whole = torch.zeros(8)
    shared = [torch.nn.Parameter(whole[:6]), torch.nn.Parameter(whole[2:])]
    optimizer = torch.optim.SGD(shared, lr=0.1, weight_decay=0.5)
    for parameter in shared:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert choice(optimizer) is None


def test_a_rate_that_becomes_a_tensor_and_types_that_change_end_it(known: Situation) -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    train(optimizer, 2)
    assert choice(optimizer) is True
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
    train(optimizer, 2)  # torch refuses it otherwise
    assert choice(optimizer) is None
    optimizer.param_groups[0]["lr"] = 0.1
    train(optimizer, 1)
    assert choice(optimizer) is True
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.data = parameter.data.to(torch.bfloat16)
        parameter.grad = None
    train(optimizer, 1)
    assert choice(optimizer) is None


def test_gradients_stay_as_they_are_with_nesterovs_momentum(known: Situation) -> None:
    """Lists of tensors would add it to them."""
    optimizer = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, nesterov=True)
    ours = optimizer.param_groups[0]["params"]
    for _ in range(3):
        for parameter in ours:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        assert all(bool((parameter.grad == 1).all()) for parameter in ours)
    assert choice(optimizer) is None and known.did_nothing(foreach_optimizer.NAME)


def test_a_group_that_is_taken_out_does_no_harm() -> None:
    found = situation()
    undo = foreach_optimizer.apply(found)
    first, *others = parameters()
    optimizer = torch.optim.Adam([{"params": [first]}, {"params": others}], lr=0.1)
    train(optimizer, 2)
    gone = optimizer.param_groups.pop(0)
    del optimizer.state[first]
    assert [group["foreach"] for group in optimizer.state_dict()["param_groups"]] == [None]
    train(optimizer, 2)
    assert choice(optimizer) is True
    undo()
    assert choice(optimizer) is None and gone["params"][0] is first
    assert found.failures == {}


def test_memory_that_comes_to_be_shared_ends_it(known: Situation) -> None:
    one, other = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    optimizer = torch.optim.SGD([one, other], lr=0.1, weight_decay=0.5)
    train(optimizer, 2)
    assert choice(optimizer) is True
    other.data = one.data
    train(optimizer, 1)
    assert choice(optimizer) is None
    other.data = torch.ones(4)
    train(optimizer, 1)
    assert choice(optimizer) is True


def test_what_a_checkpoint_asks_for_is_kept() -> None:
    found = situation()
    undo = foreach_optimizer.apply(found)
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    train(optimizer, 2)
    saved = optimizer.state_dict()
    saved["param_groups"][0]["foreach"] = True
    optimizer.load_state_dict(saved)
    train(optimizer, 2)
    assert optimizer.state_dict()["param_groups"][0]["foreach"] is True
    undo()
    assert choice(optimizer) is True


def test_states_that_are_looked_up_are_those_in_use(known: Situation) -> None:
    optimizer = torch.optim.Adam(parameters(), lr=0.1)
    train(optimizer, 2)
    saved = optimizer.state_dict()["state"][0]
    assert saved is optimizer.state[optimizer.param_groups[0]["params"][0]]


def test_rates_of_two_tensors_are_left_alone(known: Situation) -> None:
    betas = (torch.tensor(0.9), torch.tensor(0.99))
    optimizer = torch.optim.Adam(parameters(), lr=0.1, betas=betas)
    train(optimizer, 2)
    assert choice(optimizer) is None


def test_large_ones_are_left_alone(known: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreach_optimizer, "_MOST_ELEMENTS", 100)
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    train(optimizer, 1)
    assert choice(optimizer) is None


def test_beside_the_fused_form_it_does_nothing() -> None:
    measured = {"name": "optimizer-fused", "now_ms": [2.0] * 5, "then_ms": [1.0] * 5}
    found = situation(replays=[measured])
    undos = list(apply_all([foreach_optimizer.NAME, fused_optimizer.NAME], found).values())
    optimizer = torch.optim.Adam(parameters(), lr=0.1)
    train(optimizer, 3)
    group = optimizer.param_groups[0]
    assert (group["fused"], group["foreach"]) == (True, None)
    assert found.did_nothing(foreach_optimizer.NAME)
    for undo in reversed(undos):
        undo()
    assert (group["fused"], group["foreach"]) == (None, None)


def test_beside_the_native_one_it_takes_what_that_leaves() -> None:
    found = situation()
    undos = list(apply_all([foreach_optimizer.NAME, native_optimizer.NAME], found).values())
    for kind in (torch.optim.Adam, torch.optim.RMSprop):
        train(kind(parameters(), lr=0.1), 3)
    for undo in reversed(undos):
        undo()
    assert found.notes[foreach_optimizer.NAME] == [
        "Adam: foreach=True where native-optimizer leaves it",
        "RMSprop: foreach=True where native-optimizer leaves it",
    ]


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "class": "Adam", "is_torchs": True, "foreach": None, "fused": None, "capturable": False,
        "parameters": 40, "device": "cpu", "elements": 1000, **changes,
    }  # fmt: skip


def test_it_applies_where_the_choice_is_open_and_it_was_not_slower() -> None:
    applies = foreach_optimizer.applies
    assert applies(situation(optimizers=[entry()])) == (True, "Adam has 40 parameters")
    for changes in (
        {"fused": True}, {"foreach": False}, {"is_torchs": False}, {"device": "cuda"},
        {"types": ["bfloat16"]}, {"adds_to_gradients": True},
        {"class": "NAdam"}, {"elements": 10**9},
    ):  # fmt: skip
        assert not applies(situation(optimizers=[entry(**changes)]))[0]
    slower = {"name": "optimizer-foreach", "now_ms": [1.0] * 5, "then_ms": [1.5] * 5}
    assert not applies(situation(optimizers=[entry()], replays=[slower]))[0]


@pytest.mark.parametrize(
    ("options", "dtype", "is_same"),
    [
        ({}, torch.float32, True),
        ({"momentum": 0.9, "nesterov": True}, torch.float32, False),
        ({"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, torch.float32, True),
        ({}, torch.bfloat16, False),
    ],
)
def test_what_the_doctor_sees_of_an_optimizer_tells(
    options: dict[str, Any], dtype: torch.dtype, is_same: bool
) -> None:
    seen = _describe_optimizer(torch.optim.SGD(parameters(dtype), lr=0.1, **options))
    assert foreach_optimizer.gives_the_same(seen) is is_same
