"""`native-optimizer`: the same bits in one call, and what is left alone."""

import copy
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.doctor.record.loop import _describe_optimizer
from slipstream.run.fix import Situation
from slipstream.run.fixes import foreach_optimizer, native_optimizer
from slipstream.run.updating import arithmetic, group
from tests.run.loop_kit import same_losses, situation

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("SGD", {"momentum": 0.5, "dampening": 0.3}),
    ("Adam", {}),
    ("Adam", {"weight_decay": 0.01, "betas": (0.5, 0.999)}),
    ("Adam", {"betas": (0.2, 0.9), "eps": 1e-3}),
    ("Adam", {"foreach": True}),
    ("AdamW", {}),
    ("AdamW", {"weight_decay": 0.3, "betas": (0.1, 0.001)}),
]
SHAPES = ((8, 16), (16,), (33, 7), (1,), (), (5, 3, 3, 3), (300, 257))


@pytest.fixture(autouse=True)
def known() -> Iterator[Situation]:
    found = situation()
    undo = native_optimizer.apply(found)
    yield found
    undo()


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    own = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=own).to(dtype)) for shape in SHAPES]


def train(optimizer: Any, steps: int = 24) -> list[torch.Tensor]:
    """Some get no gradient at times, some only zeros; the rate changes. All values at the end."""
    own = torch.Generator().manual_seed(1)
    ours = [p for g in optimizer.param_groups for p in g["params"]]
    for step in range(steps):
        for number, parameter in enumerate(ours):
            drawn = torch.randn(parameter.shape, generator=own).to(parameter.dtype)
            parameter.grad = drawn * 10.0 ** (step % 5 - 3) * (number != 1 or step != 4)
            if number == 2 and step % 3 == 0:
                parameter.grad = None
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.99
    states = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [value for value in states if isinstance(value, torch.Tensor)]
    return [parameter.detach().clone() for parameter in ours] + copy.deepcopy(tensors)


def as_written(made: Any, known: Situation) -> list[torch.Tensor]:
    known.failures[native_optimizer.NAME] = "off"
    try:
        return train(made())
    finally:
        del known.failures[native_optimizer.NAME]


def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parameters each native step had."""
    seen: list[int] = []
    for name in ("adam", "sgd"):
        original = getattr(group, name)

        def count(lists: Any, *args: Any, original: Any = original, **how: Any) -> bool:
            done = bool(original(lists, *args, **how))
            if done:
                seen.append(len(lists[0]))
            return done

        monkeypatch.setattr(group, name, count)
    return seen


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_the_same_bits(
    known: Situation, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any]
) -> None:
    def made() -> Any:
        return getattr(torch.optim, name)(parameters(), lr=0.05, **options)

    expected = as_written(made, known)
    seen = calls(monkeypatch)
    values = train(made())
    assert len(seen) >= 20 and known.failures == {}
    assert len(values) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(values, expected, strict=True))
    assert known.notes == {native_optimizer.NAME: [f"{name}: a group of parameters in one call"]}


@pytest.mark.parametrize(("count", "is_native"), [(15, False), (17, True)])
def test_one_call_for_each_of_few_parameters_is_no_slower(
    known: Situation, count: int, is_native: bool
) -> None:
    def script() -> list[torch.Tensor]:
        made = [nn.Parameter(torch.full((3,), float(number))) for number in range(count)]
        optimizer = torch.optim.SGD(made, lr=0.3)
        for _ in range(3):
            for parameter in made:
                parameter.grad = torch.linspace(-1, 1, 3)
            optimizer.step()
        return [parameter.detach() for parameter in made]

    both_ways(known, script)
    assert bool(known.notes) is is_native


def test_values_that_are_none_and_without_bounds_stay_what_they_are(known: Situation) -> None:
    def made() -> Any:
        return torch.optim.Adam(wild, lr=0.1)

    results = []
    for is_native in (False, True):
        wild = [nn.Parameter(torch.tensor([0.0, -0.0, 1e-42, 3e38, float("inf"), 1.0]))]
        known.failures.clear() if is_native else known.failures.update({native_optimizer.NAME: ""})
        optimizer = made()
        for gradient in ([0.0, -0.0, 1e-42, 1e30, 1.0, float("nan")], [1.0] * 6):
            wild[0].grad = torch.tensor(gradient)
            optimizer.step()
        results.append(wild[0].detach())
    assert torch.equal(results[0].isnan(), results[1].isnan())
    assert torch.equal(results[0].nan_to_num(7.0), results[1].nan_to_num(7.0))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", {"amsgrad": True}), ("Adam", {"maximize": True}), ("Adam", {"fused": True}),
        ("SGD", {"maximize": True}), ("Adam", {"betas": (0.0, 0.95)}),
        ("SGD", {"fused": True}), ("Adam", {"lr": torch.tensor(0.1), "foreach": False}),
        ("NAdam", {}), ("RMSprop", {}),
    ],
)  # fmt: skip
def test_other_ways_are_torchs(
    monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any]
) -> None:
    seen = calls(monkeypatch)
    made = [nn.Parameter(torch.ones(3))]
    optimizer = getattr(torch.optim, name)(made, **{"lr": 0.1, **options})
    for _ in range(3):
        made[0].grad = torch.ones(3)
        optimizer.step()
    assert seen == []


def strange() -> dict[str, list[Any]]:
    whole = torch.zeros(8)
    picture = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    return {
        "shared": [nn.Parameter(whole[:6]), nn.Parameter(whole[2:])],
        "channels-last": [nn.Parameter(picture)],
        "double": [nn.Parameter(torch.ones(3, dtype=torch.float64))],
        "half": [nn.Parameter(torch.ones(3, dtype=torch.bfloat16))],
        "strided": [nn.Parameter(torch.ones(6)[::2])],
        "subclass": [nn.Parameter(torch.ones(3).as_subclass(Own))],
        "nothing": [nn.Parameter(torch.ones(0))],
        "large": [nn.Parameter(torch.ones(group.MOST_ELEMENTS + 1))],
    }


class Own(torch.Tensor):
    pass


@pytest.mark.parametrize("kind", list(strange()))
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_other_tensors_are_torchs(known: Situation, name: str, kind: str) -> None:
    results = []
    for is_native in (False, True):
        made = strange()[kind] if kind != "channels-last" else strange_picture()
        optimizer = getattr(torch.optim, name)(made, lr=0.1, weight_decay=0.1)
        known.failures.clear() if is_native else known.failures.update({native_optimizer.NAME: ""})
        for _ in range(2):
            for parameter in made:
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        results.append([parameter.detach().clone() for parameter in made])
    assert known.notes == known.failures == {}
    assert all(map(torch.equal, *results))


def strange_picture() -> list[Any]:
    torch.manual_seed(3)
    return strange()["channels-last"]


def test_gradients_that_lie_otherwise_are_torchs(
    known: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = calls(monkeypatch)
    made = nn.Parameter(torch.ones(4, 4))
    optimizer = torch.optim.Adam([made], lr=0.1)
    for gradient in (torch.arange(16.0).view(4, 4).t(), torch.ones(1).expand(4, 4)):
        made.grad = gradient
        optimizer.step()
    assert seen == [] and known.failures == {}
    made.grad = torch.ones(4, 4)
    optimizer.step()
    assert seen == [1, 1]  # a copy first


def test_groups_without_gradients_and_rates_that_change(
    known: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule that changes momentum with every step is no reason to look at copies again."""

    def run() -> list[torch.Tensor]:
        groups = [{"params": parameters()}, {"params": [nn.Parameter(torch.ones(3))], "lr": 1.0}]
        optimizer = torch.optim.Adam(groups, lr=0.01)
        own = torch.Generator().manual_seed(5)
        for step in range(8):
            for parameter in optimizer.param_groups[0]["params"]:
                parameter.grad = torch.randn(parameter.shape, generator=own)
            optimizer.param_groups[0]["betas"] = (0.9 - 0.01 * step, 0.999)
            optimizer.step()
        return [p.detach() for p in optimizer.param_groups[0]["params"]]

    known.failures[native_optimizer.NAME] = "off"
    expected = run()
    known.failures.clear()
    seen = calls(monkeypatch)
    assert all(map(torch.equal, run(), expected)) and known.failures == {}
    assert seen == [len(SHAPES)] * 9  # a copy in the first step


def test_functions_of_torch_are_called_by_name(known: Situation) -> None:
    made, gradient = torch.ones(3), torch.ones(3)
    import_module("torch.optim.sgd").sgd(
        params=[made], d_p_list=[gradient], momentum_buffer_list=[None], weight_decay=0.0,
        momentum=0.0, lr=0.5, dampening=0.0, nesterov=False, maximize=False,
    )  # fmt: skip
    states = {"exp_avgs": [torch.zeros(3)], "exp_avg_sqs": [torch.zeros(3)]}
    import_module("torch.optim.adam").adam(
        params=[made], grads=[gradient], **states, max_exp_avg_sqs=[],
        state_steps=[torch.tensor(0.0)], amsgrad=False, beta1=0.9, beta2=0.999, lr=0.5,
        weight_decay=0.0, eps=1e-8, maximize=False,
    )  # fmt: skip
    assert torch.allclose(made, torch.zeros(3), atol=1e-6) and known.failures == {}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself
def test_a_step_that_is_compiled_is_torchs(known: Situation) -> None:
    made = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([made], lr=0.5)
    made.grad = torch.ones(3)
    torch.compile(optimizer.step, backend="eager")()
    assert torch.allclose(made, torch.full((3,), 0.5)) and known.notes == known.failures == {}


CAPABILITIES = """
import torch
from slipstream.run.updating import arithmetic
print(torch.backends.cpu.get_cpu_capability(), arithmetic.is_fused())
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have one kind")
@pytest.mark.parametrize(("kind", "is_fused"), [("default", False), ("avx2", True)])
def test_what_torch_rounds_is_found_out_of_the_torch_at_hand(kind: str, is_fused: bool) -> None:
    variables = {**os.environ, "ATEN_CPU_CAPABILITY": kind}
    done = subprocess.run(
        [sys.executable, "-c", CAPABILITIES], env=variables, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    capability, found = done.stdout.split()
    if capability.lower() != kind:
        pytest.skip(f"torch computes with {capability} here")
    assert found == str(is_fused)


def both_ways(known: Situation, script: Any) -> list[torch.Tensor]:
    """What it gives with the fix, which is what it gives without."""
    known.failures[native_optimizer.NAME] = "off"
    expected = script()
    known.failures.clear()
    found = script()
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other), (one, other)
    assert known.failures == {}
    return list(found)


def test_gradients_without_memory_are_torchs(known: Situation) -> None:
    def script() -> list[torch.Tensor]:
        made = nn.Parameter(torch.linspace(-1, 1, 5))
        optimizer = torch.optim.Adam([made], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            torch.sgn(made).sum().backward()
            assert made.grad is not None and made.grad._is_zerotensor()
            optimizer.step()
        return [made.detach()]

    both_ways(known, script)


def test_steps_that_autograd_records_are_torchs(known: Situation) -> None:
    def script() -> list[torch.Tensor]:
        weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        fast = weight.clone()
        optimizer = torch.optim.SGD([fast], lr=0.1, weight_decay=0.1, differentiable=True)
        (fast.grad,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
        optimizer.step()
        return list(torch.autograd.grad((fast**2).sum(), weight))

    both_ways(known, script)


def test_a_step_in_inference_mode_between_others(known: Situation) -> None:
    def script() -> list[torch.Tensor]:
        made = [nn.Parameter(torch.linspace(-1, 1, count)) for count in (3, 5)]
        optimizer = torch.optim.Adam(made, lr=0.1)

        def step(which: tuple[int, ...]) -> None:
            for number, parameter in enumerate(made):
                given = torch.linspace(1, 2, parameter.numel())
                parameter.grad = given if number in which else None
            optimizer.step()

        step((0, 1))
        step((0, 1))
        made[1].grad, made[0].grad = None, torch.ones(3)
        with torch.inference_mode():
            optimizer.step()
        step((0,))
        step((0,))
        return [parameter.detach() for parameter in made]

    both_ways(known, script)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_states_that_were_made_in_inference_mode_are_torchs(known: Situation, kind: Any) -> None:
    """It does not change them elsewhere."""
    made = nn.Parameter(torch.ones(3))
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind([made], lr=0.1, **options)
    made.grad = torch.ones(3)
    with torch.inference_mode():
        optimizer.step()
    made.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="inference tensor"):
        optimizer.step()


class Stop(Exception):
    """Of a script's own."""


def test_exceptions_of_the_script_in_a_step_pass(known: Situation) -> None:
    made = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([made], lr=0.1)

    def stops() -> bool:
        raise Stop

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr(group, "is_bare", stops)
        made.grad = torch.ones(3)
        optimizer.step()
    assert known.failures == {} and torch.equal(made.detach(), torch.ones(3))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_what_lists_of_tensors_do_to_gradients_they_do(known: Situation, decay: float) -> None:
    """With Nesterov's momentum torch adds to gradients then, where nothing decays."""

    def script() -> list[torch.Tensor]:
        results = []
        for foreach in (False, True):
            made = nn.Parameter(torch.ones(5))
            optimizer = torch.optim.SGD(
                [made], lr=0.01, momentum=0.9, nesterov=True, foreach=foreach, weight_decay=decay
            )
            for _ in range(4):  # gradients add up
                made.square().sum().backward()
                optimizer.step()
            assert made.grad is not None
            results += [made.detach(), made.grad]
        return results

    both_ways(known, script)


def test_lists_of_other_parameters_take_no_memory_of_their_own(known: Situation) -> None:
    made = [nn.Parameter(torch.ones(100 + number)) for number in range(20)]
    optimizer = torch.optim.Adam(made, lr=0.1)
    native = native_optimizer._Native(known, is_fused=True)
    for step in range(2, 20):
        lists = [[torch.ones(p.shape) for p in made[:step]] for _ in range(4)]
        native._scratch.native([*lists, [torch.ones(()) for _ in made[:step]]])
    assert len(native._scratch.roots) == sum(p.numel() for p in made[:19])
    assert optimizer.state == {}


def negative() -> list[Any]:
    return [nn.Parameter(torch._neg_view(torch.ones(4)))]


def transposed(optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].t().contiguous()


def test_negative_views_and_states_of_another_shape_are_torchs(known: Situation) -> None:
    def script() -> list[torch.Tensor]:
        made = negative()
        optimizer = torch.optim.SGD(made, lr=0.1, weight_decay=0.1)
        for _ in range(3):
            made[0].grad = torch.ones(4)
            optimizer.step()
        return [made[0].detach().clone()]

    both_ways(known, script)
    made = nn.Parameter(torch.ones(3, 2))
    optimizer = torch.optim.Adam([made], lr=0.1)
    for _ in range(2):
        made.grad = torch.ones(3, 2)
        optimizer.step()
    transposed(optimizer)
    with pytest.raises(RuntimeError, match="size of tensor"):
        optimizer.step()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"betas": (1.0, 0.999)}, ZeroDivisionError), ({"lr": 1e39}, RuntimeError),
        ({"lr": "0.1"}, Exception),
    ],
)  # fmt: skip
def test_torchs_errors_are_torchs(known: Situation, changes: Any, error: Any) -> None:
    made = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([made], lr=0.1)
    made.grad = torch.ones(3)
    optimizer.step()
    optimizer.param_groups[0].update(changes)
    with pytest.raises(error):
        optimizer.step()
    assert known.failures == {}


def test_calls_that_torch_refuses_it_refuses(known: Situation) -> None:
    with torch.no_grad():
        with pytest.raises(TypeError, match="momentum"):
            import_module("torch.optim.sgd").sgd([torch.ones(1)], [torch.ones(1)], [None], lr=1.0)
        with pytest.raises(TypeError, match="amsgrad"):
            import_module("torch.optim.adam").adam([], [], [], [], [], [], lr=1.0)
        made = torch.ones(2)
        import_module("torch.optim.sgd").sgd(
            (each for each in [made]), [torch.ones(2)], [None], foreach=False, weight_decay=0.5,
            momentum=0.0, lr=0.5, dampening=0.0, nesterov=False, maximize=False,
        )  # fmt: skip
    assert torch.equal(made, torch.full((2,), 0.25)) and known.failures == {}


def test_under_transforms_of_functions_it_is_torchs(known: Situation) -> None:
    step = import_module("torch.optim.sgd").sgd

    def change(value: torch.Tensor) -> torch.Tensor:
        made = value.clone()
        with torch.no_grad():
            step(
                [made], [torch.ones_like(made)], [None], weight_decay=0.5, momentum=0.0, lr=0.5,
                dampening=0.0, nesterov=False, maximize=False, foreach=False,
            )  # fmt: skip
        return made

    assert torch.equal(torch.func.vmap(change)(torch.ones(2, 3)), torch.full((2, 3), 0.25))
    assert known.failures == known.notes == {}


def test_autograd_sees_that_parameters_have_changed(known: Situation) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, weight_decay=0.1)
    for _ in range(2):
        loss = (weight * weight).sum()
        weight.grad = torch.ones(3)
        before = weight._version
        optimizer.step()
        assert weight._version > before
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        optimizer.zero_grad()


def test_signs_of_zeros_where_the_mean_is_the_gradient(known: Situation) -> None:
    def script() -> list[torch.Tensor]:
        made = nn.Parameter(torch.ones(7))
        optimizer = torch.optim.Adam([made], betas=(0.0, 0.99))
        for gradient in (1.0, -0.0):
            made.grad = torch.full((7,), gradient)
            optimizer.step()
        return [made.detach(), optimizer.state[made]["exp_avg"].signbit()]

    both_ways(known, script)


@pytest.mark.parametrize("nesterov", [1, 2])
def test_flags_that_are_numbers(known: Situation, nesterov: Any) -> None:
    def script() -> list[torch.Tensor]:
        values = []
        for kind in (True, nesterov):
            made = nn.Parameter(torch.ones(20))
            optimizer = torch.optim.SGD([made], lr=0.1, momentum=0.9, nesterov=kind)
            for _ in range(3):
                made.grad = torch.linspace(-1, 1, 20)
                optimizer.step()
            values.append(made.detach())
        return values

    both_ways(known, script)
    assert known.failures == {} and known.notes


@pytest.mark.parametrize("is_before", [True, False])
def test_numbers_that_are_flushed(is_before: bool) -> None:
    """Threads flush as they were told to when they were started."""
    script = f"""
import torch
import slipstream

def run():
    made = torch.nn.Parameter(torch.zeros(200_000))
    optimizer = torch.optim.SGD([made], lr=0.1, momentum=0.9)
    for step in range(4):
        torch.set_flush_denormal({is_before} or step > 1)
        made.grad = torch.full((200_000,), 1e-37)
        if step > 1:
            optimizer.state[made]["momentum_buffer"].zero_()
            made.grad *= 0.01
        optimizer.step()
    torch.set_flush_denormal(False)
    return optimizer.state[made]["momentum_buffer"].view(torch.int32)

if {is_before}:
    with slipstream.faster("native-optimizer"):
        torch.set_flush_denormal(True)
        assert not (torch.full((400_000,), 1e-30) * 1e-10).any()  # on all threads
else:
    torch.ones(400_000).mul_(2)
    expected = run()
    with slipstream.faster("native-optimizer") as speed:
        found = run()
    assert torch.equal(found, expected)
    assert "are flushed" in str(speed), speed
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert found.returncode == 0, found.stderr


def test_arithmetic_that_is_another_is_not_used(
    known: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the processor's kernels had rounded in a way that was not asked for before."""
    undo = native_optimizer._Native(known, is_fused=not arithmetic.is_fused())
    made = nn.Parameter(torch.randn(64, generator=torch.Generator().manual_seed(0)))
    before = made.detach().clone()
    lists = ([made], [torch.randn(64)], [torch.randn(64)], [torch.rand(64)], [torch.ones(())])
    how = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}
    called = []
    original = import_module("torch.optim.adam").adam

    def adam(*args: Any, **given: Any) -> None:
        called.append(args[0][0] is made)
        original(*args, **given)

    monkeypatch.setattr(known, "failures", {})
    with pytest.warns(UserWarning, match="rounds in another way"), torch.no_grad():
        undo.wrap_adam(adam)(*lists[:4], [], lists[4], amsgrad=False, maximize=False, **how)
    assert called == [False, True]  # on a copy, and as written
    assert not torch.equal(made.detach(), before)


def test_arithmetic_of_this_torch_is_known() -> None:
    assert arithmetic.is_fused() is not None


def test_a_script_learns_the_same(tmp_path: Any) -> None:
    _, known = same_losses(
        """
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        for _ in range(20):
            x = torch.randn(16, 6)
            loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        """,
        tmp_path,
        "native-optimizer",
    )
    assert known.notes["native-optimizer"]


def seen_of(made: Any, **changes: Any) -> Situation:
    return situation(optimizers=[{**_describe_optimizer(made), "id": 1, **changes}])


def test_where_it_applies() -> None:
    adam = torch.optim.Adam(parameters())
    assert native_optimizer.applies(seen_of(adam))[0]
    assert foreach_optimizer.applies(seen_of(adam)) == (False, "native-optimizer does more")
    for changes in (
        {"device": "cuda"}, {"fused": True}, {"elements": 10**7}, {"is_torchs": False},
        {"types": ["float32", "float64"]}, {"capturable": True}, {"class": "RAdam"},
    ):  # fmt: skip
        assert not native_optimizer.applies(seen_of(adam, **changes))[0]
    large = seen_of(adam, elements=3_000_000)
    assert foreach_optimizer.applies(large)[0]
    rms = seen_of(torch.optim.RMSprop(parameters()))
    assert foreach_optimizer.applies(rms)[0]
    assert native_optimizer.applies(rms) == (False, "no SGD, Adam or AdamW of torch's was seen")
    assert "few enough" in native_optimizer.applies(seen_of(adam, elements=10**7))[1]


def test_where_torch_rounds_otherwise_it_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "is_fused", lambda: None)
    found = seen_of(torch.optim.Adam(parameters()))
    assert native_optimizer.applies(found) == (False, "this torch rounds in another way")
    assert foreach_optimizer.applies(found)[0]
