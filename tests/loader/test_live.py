"""The live line, on a terminal that is a text."""

import io
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.live import Live
from torch.utils.data import TensorDataset

from slipstream.loader import live
from slipstream.loader.live import LiveLine
from slipstream.loader.loader import Loader
from tests.loader import made_data
from tests.loader.made_data import Made

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Terminal:
    """A console whose every state is kept."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        self.console = Console(file=self.file, force_terminal=True, width=120)

    @property
    def lines(self) -> list[str]:
        """All states of the line, without control codes."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.file.getvalue())
        return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]

    @property
    def is_free(self) -> bool:
        """Whether the cursor is back and prints go where they went before."""
        text = self.file.getvalue()
        return text.rfind(SHOW) > text.rfind(HIDE) and not self.console._live_stack


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    terminal = Terminal()
    monkeypatch.setattr(live, "Console", lambda stderr: terminal.console)
    monkeypatch.setattr(live, "_EVERY_S", 0.0)
    streams = sys.stdout, sys.stderr
    yield terminal
    assert (sys.stdout, sys.stderr) == streams


def test_a_line_says_how_far_how_fast_and_what_the_loop_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 50.0
    monkeypatch.setattr(live.time, "perf_counter", lambda: now)
    terminal = Terminal()
    line = LiveLine(3, 2000, terminal.console)
    for _ in range(1500):
        now += 0.125
        line.update(64, 0.05, 5)
    expected = "epoch 3 · {}/2,000 batches · 512 samples/s · loop waits 40% · {} ready"
    shown = terminal.lines
    assert len(shown) == 750  # not more often than every 0.2 s
    assert shown[0] == expected.format("2", 5)
    assert shown[-1] == expected.format("1,500", 5)
    line.close()
    assert terminal.lines[-1] == expected.format("1,500", 0)
    assert terminal.is_free
    length = len(terminal.file.getvalue())
    line.close()
    assert len(terminal.file.getvalue()) == length


@pytest.mark.parametrize("workers", [0, 1])
def test_progress_of_a_loader(terminal: Terminal, workers: int) -> None:
    data = Made(made_data.a_tuple)
    loader = Loader(data, batch_size=4, num_workers=workers, progress=True)
    for _ in range(2):
        for _ in loader:
            time.sleep(0.01)
    first = [line for line in terminal.lines if line.startswith("epoch 0")]
    assert first[0].startswith("epoch 0 · 1/6 batches · ")
    assert re.fullmatch(
        r"epoch 0 · 6/6 batches · [\d,]+ samples/s · loop waits \d+% · 0 ready", first[-1]
    )
    assert "epoch 1 · 6/6 batches" in terminal.lines[-1]
    assert terminal.is_free


def test_a_loop_that_waits_shows_it(terminal: Terminal) -> None:
    def share(step_s: float, batch_s: float) -> int:
        def slow(k: int) -> int:
            time.sleep(batch_s)
            return k

        for _ in Loader(Made(slow, 5), progress=True):
            time.sleep(step_s)
        found = re.search(r"loop waits (\d+)%", terminal.lines[-1])
        assert found is not None
        return int(found.group(1))

    assert share(0.0, 0.05) > 80
    assert share(0.05, 0.0) < 40


def test_no_line_unless_asked_for(terminal: Terminal) -> None:
    list(Loader(Made(made_data.a_number)))
    assert terminal.file.getvalue() == ""


def test_a_stream_without_a_length(terminal: Terminal) -> None:
    list(Loader(made_data.Stream(6), batch_size=4, progress=True))
    assert terminal.lines[-1].startswith("epoch 0 · 2 batches · ")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["made", "tensors"])
def test_a_break_gives_the_terminal_back(terminal: Terminal, workers: int, kind: str) -> None:
    data: Any = Made(made_data.a_number)
    if kind == "tensors":
        data = TensorDataset(torch.zeros(23, 100_000))
    for number, batch in enumerate(Loader(data, num_workers=workers, progress=True)):
        del batch
        if number == 4:
            break
    assert terminal.is_free
    assert terminal.lines[-1].startswith("epoch 0 · 5/23 batches")


def failing(k: int) -> int:
    if k == 3:
        raise ValueError("no sample 3")
    return k


def test_an_error_gives_the_terminal_back(terminal: Terminal) -> None:
    def loop() -> int:
        return sum(1 for _ in Loader(Made(failing), progress=True))

    with pytest.raises(ValueError, match="no sample 3") as caught:
        loop()
    # Whoever keeps the traceback keeps the loop's frame, and with it the iterator.
    del caught
    assert terminal.is_free
    assert terminal.lines[-1].startswith("epoch 0 · 3/23 batches")


def test_closing_an_iterator_closes_its_line(terminal: Terminal) -> None:
    batches = iter(Loader(Made(made_data.a_number), progress=True))
    assert terminal.file.getvalue() == "", "a line begins with the first batch"
    next(batches)
    assert not terminal.is_free
    batches.close()
    batches.close()
    assert terminal.is_free


def test_beside_another_live_display(terminal: Terminal) -> None:
    with Live("the user's own", console=terminal.console, auto_refresh=False) as own:
        batches = list(Loader(Made(made_data.a_number), progress=True))
        own.update("still theirs", refresh=True)
    assert len(batches) == 23
    assert "still theirs" in terminal.file.getvalue()
    assert terminal.is_free


def test_two_lines_at_once(terminal: Terminal) -> None:
    loader = Loader(Made(made_data.a_number, 5), progress=True)
    assert len(list(zip(loader, loader, strict=True))) == 5
    assert terminal.is_free


def test_an_old_rich_that_has_one_live_display_only(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Live, refresh: bool = False) -> None:
        raise live.LiveError("Only one live display may be active at once")

    monkeypatch.setattr(Live, "start", refuse)
    assert len(list(Loader(Made(made_data.a_number), progress=True))) == 23
    assert terminal.file.getvalue() == ""


def test_a_stream_that_is_no_terminal_gets_the_last_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = io.StringIO()
    monkeypatch.setattr(live, "Console", lambda stderr: Console(file=file, width=120))
    list(Loader(Made(made_data.a_number), batch_size=4, progress=True))
    assert "\x1b" not in file.getvalue()
    assert file.getvalue().count("6/6 batches") == 1
