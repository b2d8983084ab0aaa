"""`with slipstream.faster()`: fixes inside, none behind, and the same numbers."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import slipstream
from slipstream.errors import UsageError


def train() -> list[str]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    data = TensorDataset(torch.randn(64, 8))
    losses = []
    for (x,) in DataLoader(data, 4, shuffle=True):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses


def places() -> list[Any]:
    return [torch.nn.Module.zero_grad, torch.save, torch.autograd.backward, DataLoader.__iter__]


def test_fixes_are_in_place_inside_and_gone_behind() -> None:
    expected, before = train(), places()
    with slipstream.faster() as speed:
        assert hasattr(torch.nn.Module.zero_grad, "__wrapped__")
        assert "not over" in str(speed)
        assert train() == expected
    assert places() == before
    assert speed.outcome is not None
    states = {fix.name: fix.state for fix in speed.outcome.fixes}
    assert states["zero-grad"] == "applied"
    why = {fix.name: fix.why for fix in speed.outcome.fixes if fix.state == "skipped"}
    assert {*why.values()} == {"there was nothing to do for it"} and "device-prefetch" in why
    assert "kept-memory" not in states
    assert speed.outcome.steps_per_s is not None and speed.outcome.steps_per_s > 0
    assert "nothing was tried or compared" in str(speed)
    assert train() == expected


def test_only_those_that_were_named() -> None:
    with slipstream.faster("zero-grad") as speed:
        pass
    assert speed.outcome is not None
    assert [fix.name for fix in speed.outcome.fixes] == ["zero-grad"]
    with pytest.raises(UsageError, match="faster cannot do 'tf32'"):
        slipstream.faster("tf32")  # rounds differently


def test_errors_are_those_of_the_block() -> None:
    before = places()
    with pytest.raises(ValueError, match="own"), slipstream.faster():
        raise ValueError("own")
    assert places() == before


def test_a_file_that_could_not_be_written_is_told(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "such" / "model.pt"
    with pytest.raises(Exception, match="such"), slipstream.faster("async-save"):
        torch.save(torch.zeros(4), missing)


def test_a_block_in_a_block_takes_what_is_not_in_place_yet() -> None:
    expected, before, thresholds = train(), places(), gc.get_threshold()
    with slipstream.faster("zero-grad", "garbage-pauses") as outer:
        with slipstream.faster() as inner:
            assert train() == expected
        assert train() == expected
    assert (places(), gc.get_threshold()) == (before, thresholds)
    assert "grad" not in vars(torch.Tensor)
    assert outer.outcome is not None and inner.outcome is not None
    assert {fix.state for fix in outer.outcome.fixes} == {"applied"}
    states = {fix.name: fix.state for fix in inner.outcome.fixes}
    assert (states["zero-grad"], states["empty-cache"]) == ("skipped", "applied")
