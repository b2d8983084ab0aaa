"""What a run says to type next."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from slipstream.doctor.capture import BACKWARD, OPTIMIZER, Process, Span
from slipstream.doctor.rules.case import Case
from slipstream.launch import Target
from slipstream.run.fix import Situation
from slipstream.run.next import folder_of, next_of, packed_gain
from slipstream.run.outcome import FixOutcome, Outcome
from slipstream.run.real import outcome_of
from slipstream.run.speed import Speed
from slipstream.run.text import print_outcome
from slipstream.run.tried import Tried
from tests.doctor.made_case import made_case

TARGET = Target("my train.py", ("--lr", "1"))
NUMERIC = FixOutcome("tf32", "N", "skipped", "float32; may round differently: --allow numeric")


def case_of(folder: Path, decode: float = 36.0, **process: Any) -> Case:
    """Two workers take 40 ms for a batch, and the loop 10 ms for a step."""
    for name in ("cats", "dogs"):
        (folder / name).mkdir(exist_ok=True)
    folders = {str(folder / "cats"): 100, str(folder / "dogs"): 90, "/etc": 1}
    facts = {"pictures": {"JPEG": [190, 190_000_000]}}
    return made_case(
        wait_ms=10, rest_ms=10,
        stages={"decode: Pillow": (decode, decode), "dataset": (40 - decode, 40 - decode)},
        **{"facts": facts, "folders": folders, **process},
    )  # fmt: skip


def step(case: Case, per_s: float = 50.0, *fixes: FixOutcome) -> tuple[str, str]:
    situation = Situation({}, case.capture)
    found = next_of(TARGET, situation, fixes, Speed(50.0, per_s, 0.9, 1.1))
    return found.command, found.why


def test_pictures_that_the_loop_still_waits_for_are_to_be_packed(tmp_path: Path) -> None:
    command, why = step(case_of(tmp_path))
    assert command == f"slipstream pack {tmp_path} {tmp_path.name}.slip"
    # Batches take two workers 20 ms, packed 0.44 of it: the loop's 10 ms are left.
    assert "about 2.0 x on top, or more" in why


def test_packed_batches_are_made_on_all_cores_beside_the_loop(tmp_path: Path) -> None:
    # 40 ms * (0.1 + 0.9 * 0.38) for a batch, and 10 ms of the loop.
    assert packed_gain(case_of(tmp_path), 20.0, 0.9) == pytest.approx(20 / 10, rel=0.05)
    two = case_of(tmp_path, cores=2)
    assert packed_gain(two, 20.0, 0.9) == pytest.approx(20 / 13.9, rel=0.1)
    assert packed_gain(two, 50.0, 0.9) == pytest.approx(50 / 13.9, rel=0.1)
    assert packed_gain(case_of(tmp_path), 10.0, 0.9) < 1.05  # nothing is waited for


def test_nothing_is_packed_where_it_brings_nothing(tmp_path: Path) -> None:
    numeric = "slipstream run --allow numeric 'my train.py' --lr 1"
    assert step(case_of(tmp_path, decode=4.0), 50.0, NUMERIC)[0] == numeric
    assert step(case_of(tmp_path), 100.0, NUMERIC)[0] == numeric
    assert step(case_of(tmp_path, folders={"/no/such": 3}), 50.0, NUMERIC)[0] == numeric
    assert step(case_of(tmp_path, facts={}), 50.0, NUMERIC)[0] == numeric


def test_a_folder_is_named_as_the_script_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    case = case_of(Path("photos"), folders={"photos/cats": 100, "photos/dogs": 90})
    assert step(case)[0] == "slipstream pack photos photos.slip"
    apart = case_of(Path("photos"), folders={"photos/cats": 100, "others/cats": 90})
    assert not step(apart)[0].startswith("slipstream pack")


def test_where_the_model_hardly_counts_it_is_not_what_to_make_faster() -> None:
    waits, trains = (
        Situation({"step_ms": 10.0, "parts": {"loading": loading}}, SimpleNamespace(loaders=()))
        for loading in (9.0, 5.0)
    )
    workers = replace(NUMERIC, name="more-workers")
    found = [next_of(TARGET, known, [NUMERIC, workers], None) for known in (waits, trains)]
    assert [one.why.rpartition(": ")[2] for one in found] == ["more-workers", "tf32, more-workers"]
    assert "--examine" in next_of(TARGET, waits, [NUMERIC], None).command


def test_otherwise_one_looks_closer(tmp_path: Path) -> None:
    assert step(case_of(tmp_path), 100.0)[0] == "slipstream doctor --examine 'my train.py' --lr 1"
    module = next_of(Target("a.b", (), is_module=True), Situation({}, None), [], None)
    assert module.command == "slipstream doctor --examine -m a.b"


def test_the_end_of_a_run_says_all_of_it() -> None:
    outcome = Outcome(
        "train.py",
        [FixOutcome("zero-grad", "E", "applied", "why"), NUMERIC],
        "8 batches are equal",
        speed=Speed(50.0, 100.0, 1.8, 2.2), ceiling_per_s=200.0, steps_per_s=90.0,
        next="slipstream pack a b", next_why="faster", others=["rank 1: zero-grad undone, why"],
    )  # fmt: skip
    console = Console(record=True, width=120)
    print_outcome(outcome, console)
    said = console.export_text()
    assert "2.00 x as fast (1.80 to 2.20): 50.00 steps/s before, 100.00 after; 1 fix" in said
    assert "45% of it reached" in said and "passed" not in said
    assert "next     slipstream pack a b" in said
    assert "rank 1: zero-grad undone, why" in said
    outcome.rank = 1
    print_outcome(outcome, console)
    assert console.export_text().count("next") == 0


def test_what_was_only_tried_is_not_called_applied() -> None:
    outcome = Outcome(
        "train.py", [FixOutcome("zero-grad", "E", "applied", "why")], "8 batches are equal",
        speed=Speed(50.0, 100.0, 1.8, 2.2), ceiling_per_s=200.0, is_dry=True,
    )  # fmt: skip
    console = Console(record=True, width=120)
    print_outcome(outcome, console)
    said = console.export_text()
    assert "1 fix passed." in said and "passed  zero-grad" in said
    assert "50% of it reached" in said and "applied" not in said


def test_a_ceiling_of_rough_times_is_not_told() -> None:
    fixes = [FixOutcome("zero-grad", "E", "applied", "why")]
    speed = Speed(50.0, 100.0, 1.8, 2.2)
    console = Console(record=True, width=120)
    warnings = ["others took 1.2 of 2 cores: times are rough"]
    print_outcome(
        Outcome("train.py", fixes, "", speed=speed, ceiling_per_s=200.0, warnings=warnings), console
    )
    assert "ceiling" not in console.export_text()


def test_fixes_that_are_skipped_for_the_same_reason_share_a_row() -> None:
    skipped = [FixOutcome(name, "N", "skipped", "not faster") for name in ("tf32", "autocast")]
    outcome = Outcome(
        "train.py", [FixOutcome("zero-grad", "E", "applied", "why"), *skipped], "",
        speed=Speed(50.0, 100.0, 1.8, 2.2), steps_per_s=60.0,
    )  # fmt: skip
    console = Console(record=True, width=120)
    print_outcome(outcome, console)
    said = console.export_text()
    assert "tf32," in said and "autocast" in said and said.count("not faster") == 1
    assert "this run 60.00 steps/s, with all that lies between steps" in said
    console = Console(record=True, width=120)
    print_outcome(replace(outcome, steps_per_s=30.0), console)
    assert "this run 30.00 steps/s, slower than the script as it is was in trials" in (
        " ".join(console.export_text().split())
    )


def test_a_slow_down_that_nobody_believes_is_no_headline() -> None:
    fixes = [FixOutcome("zero-grad", "E", "applied", "why")]
    console = Console(record=True, width=120)
    slower = Speed(2.65, 1.07, 0.19, 0.63)
    print_outcome(
        Outcome("train.py", fixes, "", speed=slower, steps_per_s=9.0, ceiling_per_s=5.0), console
    )
    said = console.export_text()
    assert "1 fix applied; what it brings could not be told from noise" in said
    assert "ceiling" not in said


def test_a_vague_gain_is_no_number() -> None:
    fixes = [FixOutcome("zero-grad", "E", "applied", "why")]
    console = Console(record=True, width=160)
    print_outcome(Outcome("train.py", fixes, "", speed=Speed(10.0, 40.0, 1.1, 9.0)), console)
    said = console.export_text()
    assert "1 fix applied: faster, and how much could not be told from noise (1.10 to 9.00" in said
    assert "4.00 x as fast" not in said


def test_what_trying_took_is_told() -> None:
    def said(speed: Speed) -> str:
        fixes = [FixOutcome("zero-grad", "E", "applied", "why")]
        console = Console(record=True, width=120)
        outcome = Outcome("train.py", fixes, "", speed=speed, tried_s=30.0, steps=69)
        print_outcome(outcome, console)
        return console.export_text()

    faster = said(Speed(50.0, 100.0, 1.8, 2.2))
    assert "trying   took 30 s, made up for after about 3,000 steps; this run had 69" in faster
    unsure = said(Speed(50.0, 48.0, 0.8, 1.2))
    assert "trying   took 30 s; whether fixes make up for that could not be told" in unsure
    assert "and this run had 69 steps" in unsure
    assert "could not be told from noise (0.80 to 1.20 x as fast)" in unsure
    anything = said(Speed(50.0, 48.0, 0.08, 9.83))
    assert "what it brings could not be told from noise." in anything


def test_a_speed_with_a_fix_that_the_run_went_without_is_that_of_trials() -> None:
    situation = Situation({"findings": []}, None)
    situation.note("parallel-loading", "left alone: batches did not come sooner", left=True)
    situation.note("async-save", "files that take a moment", left=True)
    names = ("zero-grad", "parallel-loading", "async-save")
    fixes = [FixOutcome(name, "E", "applied", "why") for name in names]
    tried = Tried(seed=1, fixes=fixes, checked="", speed=Speed(50.0, 100.0, 1.8, 2.2), seconds=30.0)
    tried.left = {"async-save": "files that take a moment"}  # in trials, too
    outcome = outcome_of(TARGET, tried, situation)
    assert outcome.missed == ["parallel-loading"] == outcome.as_dict()["missed"]
    console = Console(record=True, width=160)
    print_outcome(outcome, console)
    said = console.export_text()
    assert (
        "1 fix applied. Trials were 2.00 x as fast (1.80 to 2.20), with parallel-loading;" in said
    )
    assert "made up" not in said


@pytest.mark.parametrize(("backward", "ceiling"), [(20, 100.0), (40, None)])
def test_a_ceiling_is_one_of_the_steps_that_are_counted(
    backward: int, ceiling: float | None
) -> None:
    """The doctor's step is a batch, also where gradients of several are summed up."""
    capture = made_case(wait_ms=1.0).capture
    capture.spans = [Span(BACKWARD, 0, 1)] * backward + [Span(OPTIMIZER, 0, 1)] * 20
    situation = Situation({"findings": [], "ceiling_ms": 10.0}, capture)
    assert outcome_of(TARGET, Tried(seed=1), situation).ceiling_per_s == ceiling


FOLDERS: dict[str, tuple[dict[str, int], str | None]] = {
    "classes": ({"data/cat": 5, "data/dog": 5}, "data"),
    "splits of classes": (
        {"data/train/cat": 20, "data/train/dog": 20, "data/val/cat": 9, "data/val/dog": 9},
        "data/train",
    ),
    "splits": ({"data/train": 20, "data/Val": 30}, "data/Val"),
    "one class in a split": ({"data/train/cat": 20, "data/val/cat": 9}, "data/train"),
    "classes in groups": ({"data/red/cat": 20, "data/blue/cat": 9}, "data"),
}


@pytest.mark.parametrize(("counts", "expected"), FOLDERS.values(), ids=FOLDERS)
def test_the_folder_to_pack_is_that_of_one_split(
    tmp_path: Path, counts: dict[str, int], expected: str
) -> None:
    for folder in counts:
        (tmp_path / folder).mkdir(parents=True)
    process = Process(1, loader=0, number=None)
    process.folders.update({str(tmp_path / folder): count for folder, count in counts.items()})
    loading = SimpleNamespace(processes=[process])
    assert folder_of(cast("Any", loading)) == str(tmp_path / expected)
