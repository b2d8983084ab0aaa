"""Two reports side by side."""

import json
from pathlib import Path
from typing import Any

import pytest

from slipstream.doctor.compare import compare, load_report
from slipstream.doctor.compare_text import comparison_text, verdict_sentence
from slipstream.errors import UsageError
from tests.doctor.reports import finding, report


def test_faster() -> None:
    found = compare(report(41.2), report(22.9))
    assert (found.verdict, found.is_worse) == ("faster", False)
    assert verdict_sentence(found) == "b is 1.8 x faster: 41.2 -> 22.9 ms a step."
    assert [(part.name, round(part.change_ms, 1)) for part in found.parts] == [("loading", -18.3)]


def test_slower() -> None:
    found = compare(report(22.9), report(41.2))
    assert (found.verdict, found.is_worse) == ("slower", True)
    assert verdict_sentence(found) == "b is 1.8 x slower: 22.9 -> 41.2 ms a step."


def test_a_little_faster_is_a_percentage() -> None:
    found = compare(report(40.0), report(37.2))
    assert verdict_sentence(found) == "b is 7.0% faster: 40.0 -> 37.2 ms a step."


def test_a_difference_within_its_interval_is_none() -> None:
    found = compare(report(40, spread_ms=3), report(44, spread_ms=3))
    assert (found.verdict, found.is_worse) == ("same", False)
    assert verdict_sentence(found) == (
        "No measurable difference: 40.0 -> 44.0 ms a step"
        " (the difference is 4.00 ms, give or take 4.24 (95%))."
    )


def test_intervals_that_overlap_may_differ_all_the_same() -> None:
    assert compare(report(40, spread_ms=3), report(45, spread_ms=3)).verdict == "slower"


def test_the_tolerance_decides_what_counts() -> None:
    a, b = report(40, spread_ms=0.1), report(41, spread_ms=0.1)
    assert "2.5% is within the tolerance of 5%" in verdict_sentence(compare(a, b))
    assert compare(a, b, tolerance=0.01).verdict == "slower"


def test_a_single_step_is_no_measurement() -> None:
    steps = {"count": 1, "mean_ms": 90.0, "low_ms": 90.0, "high_ms": 90.0}
    found = compare(report(40), report(90, steps=steps))
    assert found.verdict == "same"
    assert "a single step" in verdict_sentence(found)


def test_a_report_is_the_same_as_itself() -> None:
    a = report(findings=[finding("no-workers", 8.0)])
    found = compare(a, a)
    assert found.verdict == "same"
    assert (found.parts, found.gone, found.new, found.changed, found.warnings) == ((),) * 5
    assert "No part of a step changed" in comparison_text(found)


def test_findings_come_go_and_change() -> None:
    before = [finding("no-workers", 8.0), finding("item-call", 4.0), finding("slow-save", 1.0)]
    after = [finding("item-call", 2.0), finding("pageable-copy", 3.0), finding("slow-save", 1.1)]
    found = compare(report(findings=before), report(findings=after))
    assert [gone.name for gone in found.gone] == ["no-workers"]
    assert [new.name for new in found.new] == ["pageable-copy"]
    assert [(each.name, each.before_ms, each.after_ms) for each in found.changed] == [
        ("item-call", 4.0, 2.0)
    ]
    assert found.verdict == "same"
    assert found.is_worse


def test_a_finding_may_move() -> None:
    before = [finding("item-call", 4.0, "train.py:10"), finding("item-call", 9.0, "train.py:50")]
    after = [finding("item-call", 9.0, "train.py:52"), finding("item-call", 4.0, "train.py:10")]
    found = compare(report(findings=before), report(findings=after))
    assert (found.gone, found.new, found.changed) == ((), (), ())
    moved = compare(
        report(findings=[finding("no-workers", 4.0, None)]),
        report(findings=[finding("no-workers", 4.0, "other.py:3")]),
    )
    assert (moved.gone, moved.new) == ((), ())
    twice = compare(report(findings=before[:1]), report(findings=before))
    assert [new.where for new in twice.new] == ["train.py:50"]


def test_parts_that_only_one_has_are_shown() -> None:
    b = report(parts={"loading": 26.2, "forward": 12.0, "copy": 3.0})
    found = compare(report(41.2), b)
    assert {(part.name, part.before_ms, part.after_ms) for part in found.parts} == {
        ("unattributed", 3.0, None),
        ("copy", None, 3.0),
    }


def test_other_machines_and_versions_are_told() -> None:
    machine = {"cores": 8, "memory_bytes": 25_234_767_872, "versions": {"torch": "2.13.0"}}
    nearly = {**machine, "memory_bytes": 25_234_000_000}
    assert compare(report(machine=machine), report(machine=nearly)).warnings == ()
    other = {"cores": 16, "devices": ["A100", "A100"], "versions": {"torch": "2.12.1"}}
    found = compare(report(), report(machine=other, script="other.py"))
    assert found.warnings == (
        "script: train.py -> other.py",
        "cores: 8 -> 16",
        "devices: H200 -> A100, A100",
        "torch: 2.13.0 -> 2.12.1",
    )
    assert "Take care" in comparison_text(found)


def test_the_text_is_narrow() -> None:
    far = "a/very/long/folder/" * 3 + "train.py:10"
    parts = {"loading": 26.2, "a part with a name that nobody would want to read " * 2: 15.0}
    a = report(findings=[finding("no-workers", 8.0, far)])
    b = report(30.0, parts=parts, ceiling_ms=None, findings=[finding("pageable-copy", 3.0)])
    text = comparison_text(compare(a, b))
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[:4] == [
        "b is 1.4 x faster: 41.2 -> 30.0 ms a step.",
        "",
        "  ms a step                                          a           b      change",
        "  a part with a name that nobody would wa…           -        15.0       +15.0",
    ]
    assert "  ceiling                                         15.0           -           -" in text
    assert "Gone:\n  no-workers: 8.00 ms" in text
    assert "New:\n  pageable-copy: 3.00 ms, train.py:10\n    The loop loses 3.0 ms" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "slipstream.capture/1"}, "schema is 'slipstream.capture/1'"),
        ({"step_ms": "fast"}, "step_ms is 'fast', not a number"),
        ({"step_ms": float("nan")}, "step_ms is 'nan', not a number"),
        ({"parts": [1]}, "parts is '[1]', not numbers by name"),
        ({"findings": [{"rule": "x"}]}, "findings is "),
        ({"steps": {}}, "steps.count is missing"),
        ({"steps": None}, "steps is 'None', not an object"),
        ({"steps": {"count": 0, "low_ms": 0, "high_ms": 0}}, "it saw no training step"),
    ],
)
def test_what_is_no_report_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "b.json"
    path.write_text(json.dumps({**report(), **changes}), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_report(path)
    assert message in str(caught.value)
    assert "slipstream doctor --json" in str(caught.value)
    with pytest.raises(UsageError, match=r"^b is no report"):
        compare(report(), {**report(), **changes})


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"schema": 1}', "\udcff"])
def test_files_that_hold_something_else(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"a\.json"):
        load_report(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_report(tmp_path / "none.json")


def test_paces_of_whole_epochs_are_shown_where_both_reports_have_them() -> None:
    epoch = {"steps": 200, "between_ms": 800.0, "s": 9.04}
    a = report(41.2, samples_per_s=388.3, epoch=epoch)
    b = report(22.9, samples_per_s=698.7, epoch={**epoch, "between_ms": None, "s": 4.58})
    found = compare(a, b)
    assert [(pace.name, pace.before, pace.after) for pace in found.paces] == [
        ("samples_per_s", 388.3, 698.7),
        ("epoch.s", 9.04, 4.58),
    ]
    lines = comparison_text(found).splitlines()
    assert "  samples a second                               388.3       698.7      +310.4" in lines
    assert "  seconds an epoch (estimated)                    9.04        4.58       -4.46" in lines
    assert not any("between" in line for line in lines)
    both = comparison_text(compare(a, report(22.9, epoch={**epoch, "between_ms": 300.0})))
    assert "  ms between epochs                              800.0       300.0      -500.0" in both


@pytest.mark.parametrize("epoch", [None, 3, [], {"s": "long"}, {"s": float("nan")}])
def test_reports_without_epochs_are_compared_all_the_same(epoch: Any) -> None:
    other = {"steps": 200, "between_ms": 800.0, "s": 9.04}
    assert compare(report(epoch=epoch), report(epoch=other)).paces == ()
    assert compare(report(), report(epoch=other)).paces == ()
