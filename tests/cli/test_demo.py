"""`slipstream demo`, whole and in its parts."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image
from rich.console import Console

from slipstream.cli.demo import _folder
from slipstream.cli.photos import write_photos
from slipstream.cli.story.calling import call, show_live
from slipstream.cli.story.change import changed_lines, packed_version
from slipstream.cli.story.crops import compare_crops
from slipstream.cli.story.result import Result, print_result
from slipstream.cli.story.tell import Story
from slipstream.cli.story.trained import Trained, read_trained
from slipstream.errors import InternalError, UsageError
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.conftest import Run

LEFT = ["demo.json", "packed_train.py", "report.html", "report.json", "run.json", "slow_train.py"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_whole_story(tmp_path: Path, run_cli: Run) -> None:
    done = run_cli("demo", "--count", 16, cwd=tmp_path, timeout=380)
    assert done.returncode == 0, done.stderr
    said, place = done.stdout, tmp_path / "slipstream-demo"
    assert re.findall(r"^(\d)\. ", said, re.MULTILINE) == list("1234567")
    measured = [int(n.replace(",", "")) for n in re.findall(r"^   ([\d,]+) pictures/s", said, re.M)]
    first, fixed, packed, second = measured
    table = re.findall(r"^ +([\d.]+) x  (.+?) +([\d,]+) +[\d.,]+$", said, re.MULTILINE)
    assert [way for _, way, _ in table] == [
        "as written", "slipstream run", "packed, slipstream.Loader",
    ]  # fmt: skip
    rates = [int(rate.replace(",", "")) for *_, rate in table]
    assert rates == [max(first, second), fixed, packed]
    rows = json.loads((place / "demo.json").read_text())["rows"]
    assert [float(ratio) for ratio, *_ in table] == [round(row["ratio"], 1) for row in rows]
    assert [row["pictures_per_s"] / rows[0]["pictures_per_s"] for row in rows] == [
        row["ratio"] for row in rows
    ]
    told = " ".join(said.split())
    assert json.loads((place / "run.json").read_text())["checked"] in told
    assert "the losses of all epochs, as written and fixed, are equal" in told
    assert "16 random crops of packed photos have Pillow's pixels" in told
    assert f"Look at {Path('slipstream-demo', 'report.html')}" in told
    assert sorted(path.name for path in place.iterdir()) == LEFT
    shipped = (Path(__file__).parents[2] / "examples" / "slow_train.py").read_text()
    assert (place / "slow_train.py").read_text() == shipped
    compile((place / "packed_train.py").read_text(), "packed_train.py", "exec")


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "slipstream", "demo", "--count", "16"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if line.startswith("   $ python slow_train.py"):
            break
    deadline = time.monotonic() + 60
    while not (started := psutil.Process(process.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told == "slipstream demo: interrupted\n"
    assert list(tmp_path.iterdir()) == []
    assert not any(child.is_running() for child in started)


def test_an_interrupt_while_a_program_starts_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(["-c", "import time; time.sleep(60)"], tmp_path, Console(file=io.StringIO()), "sleep")
    assert len(started) == 1
    assert not psutil.pid_exists(started[0])


def test_data_of_others_is_left_alone(tmp_path: Path, run_cli: Run) -> None:
    (tmp_path / "photos").mkdir()
    done = run_cli("demo", "--out", tmp_path)
    assert done.returncode == 2
    assert "photos exists already: remove it, or name another folder with --out." in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.parametrize("keep", [False, True])
def test_a_failure_takes_away_what_is_new(tmp_path: Path, keep: bool) -> None:
    for name in ("report.html", "demo.json"):
        (tmp_path / name).write_text("of an earlier run")
    with pytest.raises(InternalError), _folder(tmp_path, ("photos",), keep=keep):
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "a.jpg").touch()
        (tmp_path / "run.json").touch()
        raise InternalError("anything")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.json", "report.html"]
    with pytest.raises(KeyboardInterrupt), _folder(tmp_path / "new", ("photos",), keep=keep):
        raise KeyboardInterrupt
    assert not (tmp_path / "new").exists()


def test_what_others_put_there_stays(tmp_path: Path) -> None:
    """Such as notes of another program, while the demo runs."""
    for error in (InternalError("anything"), KeyboardInterrupt()):
        place = tmp_path / type(error).__name__
        with pytest.raises(type(error)), _folder(place, ("photos",), keep=False):
            for name in (*LEFT, "mine.txt"):
                (place / name).touch()
            (place / "photos").mkdir()
            (place / "results").mkdir()
            raise error
        assert sorted(path.name for path in place.iterdir()) == ["mine.txt", "results"]


@pytest.mark.parametrize("keep", [False, True])
def test_photos_stay_where_wanted(tmp_path: Path, keep: bool) -> None:
    with _folder(tmp_path / "new", ("photos", "photos.slip"), keep=keep):
        (tmp_path / "new" / "photos").mkdir()
        (tmp_path / "new" / "report.html").touch()
    left = {path.name for path in (tmp_path / "new").iterdir()}
    assert left == ({"report.html", "photos"} if keep else {"report.html"})
    if keep:
        with (
            pytest.raises(UsageError, match="exists already"),
            _folder(tmp_path / "new", ("photos",), keep=True),
        ):
            pass


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    with pytest.raises(InternalError, match=r"`fail` failed with exit code 3\. .*\nlast words"):
        call(["-c", "print('last words'); raise SystemExit(3)"], tmp_path, console, "fail")
    assert call(["-c", "print('well')"], tmp_path, console, "do") == "well\n"
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_programs_that_a_program_leaves_are_ended(tmp_path: Path) -> None:
    script = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(left.pid)
"""
    left = int(call(["-c", script], tmp_path, Console(file=io.StringIO()), "leave"))
    deadline = time.monotonic() + 10
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_a_terminal_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, out = [0.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with show_live(Console(file=out), "starting …") as live:
        for done in range(100):
            now[0] += 0.25
            live(f"{done} done")
    assert out.getvalue() == "   … 39 done\n   … 79 done\n"


def test_on_a_terminal_the_words_are_shown_and_gone() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with show_live(console, "starting …") as live:
        live("timing it as it is …" + "x" * 200)
        time.sleep(0.3)
    assert "timing it as it is …" in out.getvalue() and "x" * 60 not in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K"), "the line is wiped"


def test_epochs_are_read() -> None:
    said = "noise\nepoch 0: 10.0 pictures/s, loss 1.5\nepoch 1: 40.0 pictures/s, loss 1.25\n"
    assert read_trained(said) == Trained((10.0, 40.0), ("1.5", "1.25"))
    assert read_trained(said).pictures_per_s == 40.0, "without the first"
    assert read_trained(said[:45]).pictures_per_s == 10.0, "unless there is no other"
    with pytest.raises(InternalError, match=r"no epoch\. It said:\nnothing"):
        read_trained("nothing\n")


def test_the_change_is_small_and_refused_where_it_does_not_fit() -> None:
    text = (Path(__file__).parents[2] / "examples" / "slow_train.py").read_text()
    lines = changed_lines(text, packed_version(text))
    assert sum(line.startswith("-") for line in lines) == 1
    assert sum(line.startswith("+") for line in lines) == 5
    assert max(map(len, lines)) <= 80
    with pytest.raises(InternalError, match="has no line"):
        packed_version("another script")


def test_crops_of_other_pictures_are_refused(tmp_path: Path) -> None:
    told: list[int] = []
    write_photos(tmp_path / "photos", 5, tell=told.append)
    assert told == [1, 2, 3, 4, 5]
    pack_source(open_source(tmp_path / "photos"), tmp_path / "photos.slip")
    assert compare_crops(tmp_path / "photos", tmp_path / "photos.slip") == 5
    file = tmp_path / "photos" / "class2" / "00002.jpg"
    pixels = np.asarray(Image.open(file).convert("RGB"))
    Image.fromarray(255 - pixels).save(file, quality=95)
    with pytest.raises(InternalError, match="differ from Pillow's"):
        compare_crops(tmp_path / "photos", tmp_path / "photos.slip")


def story_of(tmp_path: Path, *losses: str) -> Story:
    """One that has trained, as written, fixed, and as written again."""
    story = Story(tmp_path, 16, Console(file=io.StringIO()))
    first, fixed, second = (Trained((8.0, 10.0), (loss,)) for loss in losses)
    story._result.as_written, story._result.fixed = [first, second], fixed
    return story


def test_losses_that_differ_are_an_error(tmp_path: Path) -> None:
    story = story_of(tmp_path, "1.5", "1.5", "1.5")
    story._compare()
    assert "losses of all epochs" in story._result.checked[0] and not story._result.notes
    with pytest.raises(InternalError, match=r"its losses are 1\.25, those .* as written 1\.5"):
        story_of(tmp_path, "1.5", "1.25", "1.5")._compare()
    story = story_of(tmp_path, "1.5", "1.25", "1.75")
    story._compare()
    assert "differ from run to run" in story._result.notes[0] and not story._result.checked


def test_the_table_counts_the_faster_of_two_runs_and_tells_of_a_busy_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = story_of(tmp_path, "1.5", "1.5", "1.5")
    result = story._result
    result.as_written[1] = Trained((8.0, 40.0), ("1.5",))
    result.fixed, result.packed = Trained((1.0, 80.0), ("1.5",)), Trained((1.0, 160.0), ("1.0",))
    story._compare()
    print_result(result, 256, Console(width=80))
    said = capsys.readouterr().out
    assert re.findall(r"([\d.]+) x .*? (\d+) +([\d.]+)\n", said) == [
        ("1.0", "40", "400.0"), ("2.0", "80", "200.0"), ("4.0", "160", "100.0"),
    ]  # fmt: skip
    assert "Note: the machine was busy: as written ran at 10 and at 40 pictures/s" in said


def test_no_table_without_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError):
        print_result(Result(as_written=[Trained((1.0,), ("1",))]), 16, Console())
    assert capsys.readouterr().out == ""


def test_scripts_of_others_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "slow_train.py").write_text("mine")
    with (
        pytest.raises(UsageError, match=r"slow_train.py exists already"),
        _folder(tmp_path, ("photos",), keep=False),
    ):
        pass
    assert (tmp_path / "slow_train.py").read_text() == "mine"
