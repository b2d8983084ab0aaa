"""`watch()`: a live line on a terminal, plain lines elsewhere."""

import io
import os
import pty
import re
import time
from contextlib import suppress

import pytest
import torch
from torch.utils.data import DataLoader

from slipstream.doctor import watch as watch_module
from slipstream.doctor.watch import watch

LINE = r"\d+\.\d ms a step · \S+ \d+ %.*"


def train(steps: int = 8, step_s: float = 0.0) -> None:
    model = torch.nn.Linear(4, 1)
    for batch in DataLoader(torch.randn(8 * steps, 4), 8):  # type: ignore[arg-type]
        model(batch).sum().backward()
        time.sleep(step_s)


def test_a_log_gets_one_plain_line_at_the_end() -> None:
    log = io.StringIO()
    with watch(file=log):
        train()
    assert re.fullmatch(f"{LINE}\n", log.getvalue())


def test_a_long_run_gets_a_plain_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch_module._EVERY_S_IN_LOGS == 30
    monkeypatch.setattr(watch_module, "_EVERY_S", 0.01)
    monkeypatch.setattr(watch_module, "_EVERY_S_IN_LOGS", 0.1)
    log = io.StringIO()
    with watch(file=log):
        train(60, step_s=0.01)
    lines = log.getvalue().splitlines()
    assert 2 <= len(lines) <= 20  # 60 steps, each of which is looked at
    assert all(re.fullmatch(LINE, line) for line in lines)


def test_a_terminal_gets_one_line_that_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_EVERY_S", 0.02)
    ours, its = pty.openpty()
    with os.fdopen(its, "w") as terminal, watch(file=terminal):
        train(30, step_s=0.01)
    shown = ""
    with suppress(OSError):  # its other end is closed
        while not shown.endswith("\n"):  # a terminal hands over what it has got so far
            shown += os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert shown.count("\r\x1b[K") >= 3
    assert shown.count("\n") == 1
    assert shown.endswith("\n")


def test_a_file_that_cannot_be_written_stops_nothing() -> None:
    log = io.StringIO()
    log.close()
    with watch(file=log) as line:
        train()
    assert line.last.step_ms > 0


def test_asking_for_the_parts_writes_nothing() -> None:
    log = io.StringIO()
    with watch(file=log) as line:
        train()
        assert line.last.step_ms > 0
        assert log.getvalue() == ""
