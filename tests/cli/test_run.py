"""`slipstream run` behind the script: what goes wrong there costs a training nothing."""

import errno
import json
from io import FileIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from slipstream.cli.run import run
from slipstream.doctor.capture import Capture
from slipstream.errors import UsageError
from slipstream.launch import parse_target
from slipstream.run import launch, text
from slipstream.run.diff import suggest
from slipstream.run.fix import Situation
from slipstream.run.outcome import FixOutcome, Outcome


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLIPSTREAM_TRIED", raising=False)
    return tmp_path


def end_with(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> list[Any]:
    """In the place of all trials and of the run; how it was called."""
    called: list[Any] = []
    fixes = [FixOutcome("zero-grad", "E", "applied", "why")]
    known = Situation({"findings": []}, Capture("train.py", {}, ""))
    outcome = Outcome(
        **{"script": "train.py", "fixes": fixes, "checked": "all", "situation": known, **facts}
    )

    def ended(*args: Any, **options: Any) -> Outcome:
        called.append((args, options))
        return outcome

    monkeypatch.setattr(launch, "run", ended)
    return called


def call(report: str | None = "result.json", **options: Any) -> int:
    given = {"allow": "exact", "only": "", "skip": "", "dry_run": False, "diff": False, **options}
    context: Any = SimpleNamespace(args=["train.py"], command=SimpleNamespace(params=[]))
    try:
        run(context, **given, report=Path(report) if report else None)
    except typer.Exit as leaving:
        return leaving.exit_code
    return 0


def fail(*args: Any) -> None:
    raise RuntimeError("our own fault")


@pytest.mark.parametrize("where", [(text, "print_outcome"), (suggest, "print_suggestions")])
@pytest.mark.parametrize("code", [0, 3])
def test_a_failure_to_print_is_told_and_no_more(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], where: Any, code: int
) -> None:
    end_with(monkeypatch, exit_code=code)
    monkeypatch.setattr(where[0], where[1], fail)
    assert call() == code
    assert json.loads(Path("result.json").read_text())["checked"] == "all"
    assert "RuntimeError: our own fault" in capfd.readouterr().err


@pytest.mark.parametrize("option", ["dry_run", "diff"])
def test_in_trials_alone_an_error_is_an_error(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    end_with(monkeypatch)
    monkeypatch.setattr(text, "print_outcome", fail)
    with pytest.raises(RuntimeError, match="our own fault"):
        call(dry_run=option == "dry_run", diff=option == "diff")
    assert Path("result.json").exists()


def test_streams_of_the_script_and_a_folder_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("results").mkdir()
    called = end_with(monkeypatch, exit_code=4)
    ended = launch.run

    def run_and_remove(*args: Any, **options: Any) -> Outcome:
        Path("results").rmdir()
        monkeypatch.setattr("sys.stdout", SimpleNamespace(write=lambda text: None))
        return ended(*args, **options)

    monkeypatch.setattr(launch, "run", run_and_remove)
    assert call("results/result.json") == 4
    assert len(called) == 1
    said = capfd.readouterr().err
    assert "FileNotFoundError" in said and "zero-grad" in said


@pytest.mark.parametrize(
    ("report", "why"), [("no/such.json", "there is no folder"), (".", "is a folder")]
)
def test_a_report_that_cannot_be_written_is_told_first(
    monkeypatch: pytest.MonkeyPatch, report: str, why: str
) -> None:
    called = end_with(monkeypatch)
    with pytest.raises(UsageError, match=why):
        call(report)
    assert not called


def test_no_table_where_nothing_was_chosen_from(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    end_with(monkeypatch, fixes=[], checked="no training step was seen")
    assert call() == 0
    assert capfd.readouterr().err == ""
    end_with(monkeypatch, fixes=[], warnings=["it failed in a trial: [rank1]: no data"])
    assert call() == 0
    assert "it failed in a trial: [rank1]: no data" in capfd.readouterr().err


def test_what_a_script_says_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    called = end_with(monkeypatch)
    assert call() == 0
    called[0][1]["say"]("[rank1]: no data")
    assert "slipstream: [rank1]: no data" in capfd.readouterr().err


def test_the_table_does_not_go_into_a_log_of_the_script(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    end_with(monkeypatch)
    with Path("own.log").open("w") as log, monkeypatch.context() as replaced:
        replaced.setattr("sys.stderr", log)
        replaced.setattr("sys.__stderr__", TextIOWrapper(FileIO(2, "w", closefd=False)))
        call()
    assert "zero-grad" in capfd.readouterr().err
    assert not Path("own.log").read_text()


def test_no_room_for_trials_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    Path("train.py").write_text("print(1)")
    monkeypatch.setattr(launch, "Trials", full)
    monkeypatch.setenv("TMPDIR", "/tmp/small")
    with pytest.raises(UsageError, match="no place for trials in /tmp/small: No space left"):
        call()
    with pytest.raises(UsageError, match="cannot come from standard input"):
        parse_target(["-"], "run", [])
