"""When a recording ends by itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from slipstream.doctor.attribute import attribute
from slipstream.doctor.capture import OPTIMIZER
from slipstream.doctor.record.session import Session
from slipstream.launch import WindowEnded


def train(session: Session, every: int, *, has_optimizer: bool = True) -> int:
    """Batches until the window ends, with a step of the optimizer for every so many."""
    model = torch.nn.Linear(4, 1)
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), 0.1) if has_optimizer else None
    loader: Any = DataLoader(torch.ones(4000, 4), 4)  # type: ignore[arg-type]
    batches = 0
    try:
        for batches, x in enumerate(loader, 1):
            model(x).sum().backward()
            if optimizer is not None and batches % every == 0:
                optimizer.step()
    except WindowEnded:
        pass
    return batches


@pytest.mark.parametrize(
    ("every", "batches", "steps"),
    [(1, 25, 25), (20, 25, 1), (60, 60, 1), (70, 70, 1), (200, 80, 0)],
)
def test_a_window_has_a_step_of_the_optimizer(every: int, batches: int, steps: int) -> None:
    session = Session("sums", steps=20, seconds=100.0)
    assert train(session, every) == batches
    spans = session.stop("window").spans
    assert sum(span.kind == OPTIMIZER for span in spans) == steps


def test_gradients_without_an_optimizer_are_not_waited_for() -> None:
    session = Session("by hand", steps=20, seconds=100.0)
    assert train(session, 1, has_optimizer=False) == 25
    session.stop("window")


def _by_backward(model: torch.nn.Linear) -> None:
    model.zero_grad()
    model(torch.ones(4, 4)).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.data.add_(parameter.grad, alpha=-0.1)


def _by_grad(model: torch.nn.Linear) -> None:
    own = list(model.parameters())
    for parameter, gradient in zip(
        own, torch.autograd.grad(model(torch.ones(4, 4)).sum(), own), strict=True
    ):
        parameter.data.add_(gradient, alpha=-0.1)


def _with_penalty(model: torch.nn.Linear) -> None:
    x = torch.ones(4, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(outputs=model(x).sum(), inputs=x, create_graph=True)
    slope.square().sum().backward()
    _by_backward(model)


def _trained_by_hand(
    step: Callable[[torch.nn.Linear], None], *, takes_batch: bool = False
) -> tuple[int, int]:
    """Steps until the window ends, and those that are seen in it."""
    session = Session("by hand", steps=20, seconds=100.0)
    model = torch.nn.Linear(4, 1)
    session.start()
    count = 0
    try:
        if takes_batch:
            next(iter(DataLoader(torch.ones(4, 4), 4)))  # type: ignore[arg-type]
        for _ in range(1000):
            step(model)
            count += 1
    except WindowEnded:
        pass
    return count, len(attribute(session.stop("window")).steps)


@pytest.mark.parametrize("step", [_by_backward, _by_grad, _with_penalty])
def test_steps_by_hand_without_a_loader(step: Callable[[torch.nn.Linear], None]) -> None:
    count, steps = _trained_by_hand(step)
    assert count in (24, 25)
    assert 15 <= steps <= 25


def test_steps_by_hand_on_one_batch() -> None:
    count, steps = _trained_by_hand(_by_backward, takes_batch=True)
    assert count < 200
    assert steps > 15


def test_gradients_that_torch_asks_for_are_no_steps() -> None:
    session = Session("checks first", steps=20, seconds=100.0)
    session.start()
    x = torch.randn(8, 8, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(torch.sin, x)
    assert not session.has_begun
    session.stop("script")


@pytest.mark.parametrize(("every", "is_seen"), [(10**9, False), (1, True)])
def test_nor_are_they_for_ever(every: int, is_seen: bool) -> None:
    session = Session("sums", steps=None, seconds=0.01)
    assert 0 < train(session, every) < 1000
    assert any(span.kind == OPTIMIZER for span in session.stop("window").spans) == is_seen


def test_two_optimizers_do_not_make_a_window_shorter() -> None:
    session = Session("adversaries", steps=20, seconds=100.0)
    model = torch.nn.Linear(4, 1)
    session.start()
    both = [torch.optim.SGD(model.parameters(), 0.1) for _ in range(2)]
    batches = 0
    try:
        for x in DataLoader(torch.ones(400, 4), 4):  # type: ignore[arg-type]
            for optimizer in both:
                model(x).sum().backward()
                optimizer.step()
            batches += 1
    except WindowEnded:
        pass
    session.stop("window")
    assert batches == 25
