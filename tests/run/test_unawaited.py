"""Which calls are noted as copies that nobody waited for; that they are waited for is tried on a
GPU.
"""

from typing import Any

import pytest
import torch

from slipstream.run.unawaited import unawaited

X = torch.zeros(4)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Any:
    found: list[Any] = []
    monkeypatch.setattr(unawaited, "_note_copy", lambda *things: found.append(things))
    undo = unawaited.follow()
    yield found
    undo()


@pytest.mark.parametrize(
    "copy",
    [
        lambda: X.to("cpu", non_blocking=True),
        lambda: X.to(torch.float64, True),
        lambda: X.to(device="cpu", non_blocking=True),
        lambda: X.to(torch.zeros(1), non_blocking=True),
        lambda: torch.zeros(4).copy_(X, non_blocking=True),
        lambda: torch.zeros(4).copy_(X, True),
        lambda: torch._foreach_copy_([torch.zeros(4)], [X], non_blocking=True),
        lambda: torch._foreach_copy_([torch.zeros(4)], [X], True),
        lambda: torch.nn.Linear(1, 1, bias=False).to("cpu", non_blocking=True),
    ],
)
def test_those_that_do_not_wait_are_noted(noted: Any, copy: Any) -> None:
    copy()
    assert len(noted) == 1


@pytest.mark.parametrize(
    "copy",
    [
        lambda: X.to("cpu"),
        lambda: X.to("cpu", non_blocking=False),
        lambda: X.to("cpu", torch.float64),
        lambda: torch.zeros(4).copy_(X),
        lambda: torch._foreach_copy_([torch.zeros(4)], [X]),
        X.clone,
    ],
)
def test_those_that_wait_are_not(noted: Any, copy: Any) -> None:
    copy()
    assert not noted


def test_both_sides_of_a_copy_are_looked_at(noted: Any) -> None:
    host = torch.zeros(4)
    host.copy_(X, non_blocking=True)
    assert any(thing is host for thing in noted[0]) and any(thing is X for thing in noted[0])


def test_copies_on_the_processor_need_no_mark() -> None:
    undo = unawaited.follow()
    torch.zeros(4).copy_(X, non_blocking=True)
    assert not unawaited._marks
    undo()


def test_a_mark_is_there_until_it_was_waited_for() -> None:
    """Another thread waits for it as well."""

    class Mark:
        def synchronize(self) -> None:
            assert "stream" in unawaited._marks

    unawaited._marks["stream"] = Mark()
    unawaited.wait()
    assert not unawaited._marks


def test_it_is_there_once_for_several_fixes_and_goes_with_the_last() -> None:
    plain = torch.Tensor.to
    first = unawaited.follow()
    followed = torch.Tensor.to
    second = unawaited.follow()
    assert torch.Tensor.to is followed is not plain
    first()
    assert torch.Tensor.to is followed
    second()
    assert torch.Tensor.to is plain
