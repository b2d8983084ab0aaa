"""Following a script: it never fails of being looked at, and little is kept of what it does."""

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from slipstream.doctor.capture import Capture
from slipstream.launch import Target, WindowEnded
from slipstream.run.fix import Situation
from slipstream.run.follow import Follower
from slipstream.run.seen import digest, is_read, kept, number_of, told
from slipstream.run.trace import Trace
from slipstream.run.trial import try_out


class Node:
    def __init__(self, x: float) -> None:
        self.x = torch.full((2,), x)
        self.parts = [self]


class Silent:
    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Closed:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("not yours")


def deep() -> list[Any]:
    nest: list[Any] = []
    for _ in range(100_000):
        nest = [nest]
    return nest


def follow(use: Callable[[], Any]) -> Trace:
    follower = Follower()
    follower.start()
    try:
        use()
    finally:
        trace = follower.stop()
    return trace


@pytest.mark.filterwarnings("ignore:.*nested")
@pytest.mark.parametrize(
    ("make", "is_known"),
    [
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), True),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            True,
        ),
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), True),
        (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, True),
        (lambda: torch.ones(3, device="meta"), True),
        (lambda: torch.eye(3).to_sparse(), True),
        (lambda: torch.zeros(0, 3), True),
        (lambda: Node(1.0), True),
        (deep, False),
        (Silent, False),
        (Closed, False),
    ],
)
def test_a_script_does_not_fail_of_its_batches(make: Callable[[], Any], is_known: bool) -> None:
    given: list[Any] = []

    def use() -> None:
        given.extend(DataLoader([0, 1], 1, collate_fn=lambda _: make()))  # type: ignore[arg-type]

    trace = follow(use)
    assert len(given) == len(trace.batches) == 2
    (_, one), (_, other) = trace.batches
    assert is_read(one) == is_read(other) == is_known
    assert (one == other) == is_known


def test_what_differs_has_another_digest() -> None:
    pairs: list[tuple[Any, Any]] = [
        (Node(1.0), Node(2.0)),
        (torch.ones(2, dtype=torch.complex64).conj(), torch.full((2,), 1 + 1j).conj()),
        (torch.ones(2, device="meta"), torch.ones(3, device="meta")),
        ({"a": 1}, {"b": 1}),
        (b"a", "a"),
        (1, True),
    ]
    for one, other in pairs:
        assert digest(one) != digest(other)


def test_arrays_are_compared_bit_for_bit() -> None:
    array = np.zeros(5000)  # of which repr leaves most out
    other = array.copy()
    other[2500] = np.nextafter(0, 1)
    assert digest({"x": array}) == digest({"x": array.copy()}) != digest({"x": other})
    assert digest(array) != digest(array.astype("f4")) != digest(array.reshape(50, 100))
    assert digest(other[::2]) == digest(other[::2].copy())
    assert digest(np.float32(0.5)) == digest(np.float32(0.5)) != digest(np.float64(0.5))
    things = np.empty(2000, dtype=object)
    things[:] = [torch.zeros(1) for _ in range(2000)]
    same, changed = things.copy(), things.copy()
    changed[1000] = torch.ones(1)
    assert digest(things) == digest(same) != digest(changed)


def test_a_backward_pass_may_begin_with_anything() -> None:
    x = torch.ones(3, requires_grad=True)
    edge = torch.autograd.graph.get_gradient_edge(x * 2)

    def use() -> None:
        torch.autograd.backward(edge, torch.ones(3))
        torch.autograd.backward(y for y in [x.sum()])  # type: ignore[arg-type]
        torch.autograd.backward([(x * 1j).sum()], [torch.tensor(1j)])
        x.sum().backward()  # type: ignore[no-untyped-call]

    assert follow(use).losses[-2:] == [(3.0).hex()] * 2
    assert x.grad is not None


def test_little_is_kept_of_activations() -> None:
    """Checkpoints that enter autograd again begin backward passes with all of an activation."""
    follower = Follower()
    follower.start()
    x = torch.ones(4, 1 << 20, requires_grad=True)
    checkpoint(torch.sin, x, use_reentrant=True).sum().backward()
    memory = sum(loss.untyped_storage().nbytes() for loss in follower._losses)
    losses = follower.stop().losses
    assert len(losses) == 2
    assert memory < 100
    assert math.isclose(float.fromhex(losses[1]), 4 * (1 << 20) * math.sin(1), rel_tol=1e-6)


@pytest.mark.parametrize("make", [
    lambda: torch.randn(3, 1500, 700).transpose(0, 1),
    lambda: torch.randn(2_500_000)[::2],
    lambda: torch.randn(1500, 1500, dtype=torch.complex64).conj(),
    lambda: torch.randn(5).bfloat16(),
])  # fmt: skip
def test_sums_are_those_of_all_numbers(make: Callable[[], torch.Tensor]) -> None:
    data = make()
    whole = torch.view_as_real(data.resolve_conj()) if data.is_complex() else data
    assert kept(data).numel() == 1
    assert math.isclose(number_of(told(kept(data))), float(whole.double().sum()), rel_tol=1e-9)


def test_what_has_no_value_is_not_read() -> None:
    for shape in ((3,), ()):
        said = told(kept(torch.ones(shape, device="meta")))
        assert not is_read(said)
        assert math.isnan(number_of(said))
    assert is_read(told(torch.tensor(math.nan)))


def _train(step: Callable[[int], Any], steps: int = 1000) -> Follower:
    follower = Follower(steps=20)
    follower.start()
    try:
        for number in range(steps):
            step(number)
    except WindowEnded:
        pass
    follower.stop()
    return follower


def test_gradients_inside_a_step_are_no_steps() -> None:
    """Of learning to learn: a hundred of them before the optimizer makes its first step."""
    model = torch.nn.Linear(4, 1)

    def step(number: int) -> None:
        if not number:
            made.append(torch.optim.SGD(model.parameters(), 0.01))
        weight = model.weight
        for _ in range(100):
            loss = torch.nn.functional.linear(torch.ones(2, 4), weight).sum()
            weight = weight - 0.01 * torch.autograd.grad(loss, weight, create_graph=True)[0]
        weight.sum().backward()
        made[0].step()

    made: list[Any] = []
    follower = _train(step)
    assert follower.steps == 20
    assert len(follower.trace.losses) == 21


def test_those_that_torch_asks_for_are_no_steps() -> None:
    x = torch.randn(8, 8, dtype=torch.double, requires_grad=True)
    assert _train(lambda number: torch.autograd.gradcheck(torch.sin, x), 2).steps == 0


def test_segments_that_enter_autograd_again_are_no_steps() -> None:
    layers = [torch.nn.Linear(4, 4) for _ in range(12)]
    optimizer = torch.optim.SGD(torch.nn.ModuleList(layers).parameters(), 0.01)
    count = 0

    def step(number: int) -> None:
        nonlocal count
        x = torch.ones(2, 4, requires_grad=True)
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=True)
        x.sum().backward()
        optimizer.step()
        count += 1

    assert _train(step).steps == 20
    assert count == 20


def test_steps_by_hand_on_one_batch() -> None:
    (x,) = torch.ones(1, 8, 4)
    weight = torch.zeros(4, requires_grad=True)

    def step(number: int) -> None:
        if not number:
            next(iter(DataLoader(x, 8)))  # type: ignore[arg-type]
        (x @ weight).sum().backward()
        weight.data.add_(weight.grad, alpha=-0.1)

    follower = _train(step)
    assert 20 <= follower.steps < 100


def test_a_fix_gives_up_where_warnings_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    known = Situation({}, Capture("train.py", {}, ""))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known.give_up("zero-grad", ValueError("odd"))
    assert known.failures == {"zero-grad": "ValueError: odd"}
    assert "zero-grad failed and is off" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="slipstream: fast-loader failed"):
        known.give_up("fast-loader", ValueError("odd"))


def test_a_script_that_catches_the_end_of_its_window_did_not_end_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
import sys
from torch.utils.data import DataLoader
try:
    for batch in DataLoader(range(100)):
        pass
except BaseException:
    sys.exit(4)
""")
    trace = try_out(Target(str(script)), seed=1, steps=5).trace
    assert trace is not None
    assert (trace.ended, len(trace.batches)) == ("window", 5)


def accumulate(every: int) -> tuple[Follower, int]:
    """A loop that goes on for long, and the optimizer steps until it is stopped."""
    steps = 0
    follower = Follower(steps=48, seconds=100.0)
    follower.start()
    try:
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        loader: Any = DataLoader(torch.ones(4000, 4), 4)  # type: ignore[arg-type]
        for number, x in enumerate(loader, 1):
            model(x).sum().backward()
            if number % every == 0:
                optimizer.step()
                steps += 1
    except WindowEnded:
        pass
    finally:
        follower.stop()
    return follower, steps


@pytest.mark.parametrize(
    ("every", "steps", "counted"),
    [
        (1, 48, 48),  # steps
        (4, 48, 48),
        (16, 2, 48),  # batches
        (64, 1, 72),  # eight behind the first step
        (150, 1, 158),
        (500, 0, 192),  # too far away
    ],
)
def test_a_window_has_a_step_of_the_optimizer(every: int, steps: int, counted: int) -> None:
    follower, made = accumulate(every)
    assert follower.has_ended
    assert (made, follower.steps, len(follower.trace.ends)) == (steps, counted, counted)
    # What the step did can be seen.
    assert len(set(follower.trace.losses)) > 1 or not steps


def test_gradients_without_an_optimizer_are_not_waited_for() -> None:
    follower = Follower(steps=48)
    follower.start()
    weight = torch.ones(4, requires_grad=True)
    loader: Any = DataLoader(torch.ones(4000, 4), 4)  # type: ignore[arg-type]
    with pytest.raises(WindowEnded):
        for x in loader:
            (x @ weight).sum().backward()
    follower.stop()
    assert follower.steps == 48


def test_an_optimizer_that_asks_often_makes_steps_all_the_same() -> None:
    """One batch, of which each step of it makes many backward passes."""
    follower = Follower(steps=48)
    follower.start()
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.LBFGS([weight], lr=1e-4, max_iter=20, line_search_fn=None,
                                  tolerance_grad=0.0, tolerance_change=0.0)  # fmt: skip
    loader: Any = DataLoader(torch.randn(64, 4), 64)  # type: ignore[arg-type]
    x = next(iter(loader))

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (x @ weight - 1).square().mean()
        loss.backward()
        return loss

    with pytest.raises(WindowEnded):
        for _ in range(100):
            optimizer.step(closure)
    trace = follower.stop()
    assert follower.steps == len(trace.ends) == 48
    assert len(trace.losses) > 100


def train(steps: int) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def test_trainings_one_after_the_other_are_all_counted() -> None:
    follower = Follower()
    follower.start()
    for _ in range(5):
        train(20)
    follower.stop()
    assert follower.steps == 100


def test_of_two_optimizers_the_first_is_counted() -> None:
    follower = Follower()
    follower.start()
    first, second = (torch.optim.SGD([torch.ones(2, requires_grad=True)], 0.1) for _ in range(2))
    for _ in range(30):
        first.step()
        for _ in range(5):
            second.step()
    assert follower.steps == 30
    for _ in range(100):  # alone, and the first one is still there
        second.step()
    follower.stop()
    assert follower.steps == 30 + 100 - 64 + 5


def test_an_optimizer_for_each_parameter_makes_one_step_of_all() -> None:
    follower = Follower()
    follower.start()
    every = [torch.optim.SGD([torch.ones(2, requires_grad=True)], 0.1) for _ in range(100)]
    for _ in range(5):
        for optimizer in every:
            optimizer.step()
    follower.stop()
    assert follower.steps == 5
