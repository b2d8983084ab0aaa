"""Tracebacks of a script that is watched are those of a script that is not."""

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import slipstream
from slipstream.doctor.record.loop import LoopHooks
from slipstream.doctor.record.session import Session
from slipstream.tracebacks import hide_own_frames

_OWN = str(Path(slipstream.__file__).parent)


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session("fails", steps=None, seconds=None)
    made.start()
    yield made
    made.stop("error")


def files_of(function: Callable[[], Any]) -> tuple[list[str], list[str]]:
    """Those of a failure, as they are, and without ours."""
    with pytest.raises(Exception) as caught:
        function()
    error = caught.value
    before = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    hide_own_frames(error)
    return before, [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def is_own(file: str) -> bool:
    return file.startswith(_OWN)


class Broken:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        raise KeyError(index)


def collate(samples: list[Any]) -> Any:
    raise ValueError("mine")


FAILURES: dict[str, Callable[[], Any]] = {
    "a sample": lambda: list(DataLoader(Broken(), 4)),  # type: ignore[arg-type]
    "a batch": lambda: list(DataLoader(torch.ones(8, 1), 4, collate_fn=collate)),  # type: ignore[arg-type]
    "a layer": lambda: torch.nn.Linear(3, 1)(torch.ones(2, 4)),
    "a call without a frame": lambda: torch.ones(2).backward(),
    "a file": lambda: torch.save(torch.ones(1), "/no/such/folder/model.pt"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_frames_that_pass_a_call_on_are_hidden(session: Session, name: str) -> None:
    before, after = files_of(FAILURES[name])
    assert any(map(is_own, before))
    assert after == [file for file in before if not is_own(file)]
    assert after[0] == __file__


@pytest.mark.parametrize("name", ["a sample", "a batch"])
def test_those_of_fixes_too(session: Session, name: str) -> None:
    with slipstream.faster("native-pictures"):
        before, after = files_of(FAILURES[name])
    assert any("run/pictures" in file for file in before) == (name == "a sample")
    assert after == [file for file in before if not is_own(file)]


def test_those_that_led_to_an_error_too(session: Session) -> None:
    def chained() -> None:
        try:
            FAILURES["a sample"]()
        except KeyError as error:
            raise RuntimeError("no data") from error

    with pytest.raises(RuntimeError) as caught:
        chained()
    hide_own_frames(caught.value)
    assert "slipstream/doctor" not in "".join(traceback.format_exception(caught.value))
    assert "in __getitem__" in "".join(traceback.format_exception(caught.value))


def test_what_fails_in_us_is_not_hidden(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopHooks, "_watch_graph", lambda *_: {}["ours"])
    loss = torch.nn.Linear(2, 1)(torch.ones(1, 2)).sum()
    before, after = files_of(loss.backward)
    assert after == before
    assert any(map(is_own, after))


def test_errors_that_workers_send_have_the_users_frames(session: Session) -> None:
    with pytest.raises(KeyError) as caught:
        list(DataLoader(Broken(), 4, num_workers=1))  # type: ignore[arg-type]
    text = str(caught.value)
    assert "Original Traceback" in text
    assert "__getitem__" in text
    assert f"{_OWN}/doctor" not in text.replace("\\n", "\n")
