"""The report on a terminal."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from slipstream.doctor.attribute import EVALUATION, PARTS, UNATTRIBUTED
from slipstream.doctor.rules import all_rules
from slipstream.doctor.text import _CAUSES, print_report
from tests.doctor.reports import finding, report

_STEP_MS = 100.0
_SHARES = {
    "loading": 50.0, "backward": 30.0, "forward": 10.0, "optimizer": 5.0, "garbage": 0.004,
    "unattributed": 4.996,
}  # fmt: skip


def screen(
    width: int = 80, page: str | None = None, arguments: tuple[str, ...] = (), **changes: Any
) -> list[str]:
    """The lines of a terminal without colours."""
    made = {**report(_STEP_MS, parts=_SHARES, ladder=[], storage=[]), **changes}
    out = io.StringIO()
    plain = Console(
        file=out, width=width, highlight=False, force_terminal=False, color_system=None
    )  # whatever FORCE_COLOR says where the tests run
    print_report(made, plain, page=page, arguments=arguments)
    return out.getvalue().splitlines()


def named(rule: str, cost_ms: float = 20.0, **changes: Any) -> dict[str, Any]:
    return {**finding(rule, cost_ms), "next": None, **changes}


def healthy(*rules: str) -> list[dict[str, str]]:
    return [{"rule": rule, "title": ""} for rule in rules]


def test_each_part_has_a_fill_of_its_own_and_the_same_sign_in_its_row() -> None:
    parts = dict.fromkeys((*dict.fromkeys(PARTS.values()), EVALUATION), _STEP_MS / 13)
    lines = screen(parts={**parts, UNATTRIBUTED: _STEP_MS / 13})
    bar = lines[2].partition(" ")[0]
    assert len(bar) == 60
    signs = dict.fromkeys(bar)
    assert len(signs) == 13
    rows = dict(re.findall(r"(\S)  ([a-z-]+) +\d+\.\d\d ms", "\n".join(lines)))
    assert set(rows) == set(signs)
    assert rows["█"] == "loading"
    assert rows["░"] == "unattributed"


def test_rows_of_nothing_but_zeros_are_left_out() -> None:
    assert not any("garbage" in line for line in screen())
    assert any("garbage" in line for line in screen(parts={**_SHARES, "garbage": 0.03}))


def test_the_classes_that_are_shown_are_explained_in_one_line() -> None:
    first, second = named("no-workers"), named("no-amp", **{"class": "N"})
    lines = screen(findings=[first, second])
    assert "[E] same results bit for bit · [N] other rounding or random numbers" in lines
    assert not any("[S]" in line for line in lines)
    assert not any("[E]" in line for line in screen())


@pytest.mark.parametrize(
    ("low", "high", "how", "said"),
    [
        (5.0, 20.0, "bounded", "Saves 5.0 to 20.0 ms a step (estimated)."),
        (0.0, 20.0, "bounded", "Saves up to 20.0 ms a step (estimated)."),
        (20.0, 20.01, "measured", "Saves 20.0 ms a step (measured by trying it)."),
        (5.0, 20.0, "simulated", "Saves 5.0 to 20.0 ms a step (predicted by a simulation)."),
    ],
)
def test_gains_are_told_in_plain_words(low: float, high: float, how: str, said: str) -> None:
    gain = {"low_ms": low, "high_ms": high, "how": how}
    text = " ".join(line.strip() for line in screen(findings=[named("no-workers", gain=gain)]))
    assert said in text


def test_what_costs_memory_and_no_time_shows_no_zeros() -> None:
    gain = {"low_ms": 0.0, "high_ms": 0.0, "how": "bounded"}
    lines = screen(findings=[named("graph-held", 0.0, gain=gain)])
    assert "1. graph-held  train.py:10" in lines
    assert not any("Saves" in line for line in lines)


def test_what_was_not_found_is_counted_and_what_matters_here_is_named() -> None:
    rules = [rule.name for rule in all_rules()]

    def said(parts: dict[str, float]) -> str:
        text = "\n".join(screen(parts=parts, healthy=healthy(*rules), width=200))
        return text.partition("Looked for and not found: ")[2].partition(".")[0]

    slow_input = said(_SHARES)
    assert slow_input.startswith(f"{len(rules)} causes, among them no-workers, too-few-workers, ")
    assert len(slow_input.partition("among them ")[2].split(", ")) == 8
    slow_saves = said({"checkpoint": 90.0, "loading": 10.0})
    assert "among them frequent-checkpoint, no-workers, " in slow_saves
    assert not any("not found" in line for line in screen(healthy=[]))


def test_rules_that_the_screen_knows_exist() -> None:
    rules = {rule.name for rule in all_rules()}
    assert {rule for causes in _CAUSES.values() for rule in causes} <= rules
    assert set(_CAUSES) == {*PARTS.values(), EVALUATION, UNATTRIBUTED}


def next_line(*commands: str | None) -> list[str]:
    found = [named(f"rule-{k}", next=command) for k, command in enumerate(commands)]
    return [line for line in screen(findings=found) if line.startswith("Next:")]


def test_the_next_command_is_the_first_findings_own_where_others_have_none() -> None:
    command = "slipstream run --only a t.py"
    assert next_line(command, None) == next_line(command, command) == [f"Next: {command}"]
    assert next_line(command, "slipstream run --only b t.py") == ["Next: slipstream run train.py"]
    found = [named(f"rule-{k}", next=f"slipstream run --only {k} t.py ARGS") for k in "ab"]
    lines = screen(findings=found, arguments=("--epochs", "2"))
    assert "Next: slipstream run train.py --epochs 2" in lines
    # What others have would mend something else than what stands first.
    assert next_line(None, "slipstream run --only b t.py") == ["Next: slipstream run train.py"]
    assert next_line(None, None) == []
    assert next_line() == []


def test_the_next_command_has_the_scripts_arguments() -> None:
    found = [named("rule", next="slipstream run --only a t.py ARGS")]
    lines = screen(findings=found, arguments=("--epochs", "2", "--name", "my run"))
    assert "Next: slipstream run --only a t.py --epochs 2 --name 'my run'" in lines


def test_a_command_stays_on_its_line_to_be_copied() -> None:
    command = f"slipstream run --only parallel-loading {'a-long-name/' * 8}train.py"
    assert next_line(command) == [f"Next: {command}"]


def test_a_report_that_is_not_there_is_not_spoken_of() -> None:
    many = [named(f"rule-{k}") for k in range(9)]
    lines = screen(findings=many, healthy=healthy(*(rule.name for rule in all_rules())))
    assert not any("report" in line for line in lines)
    assert "Smaller ones: rule-3, rule-4, rule-5, rule-6, rule-7 and 1 more." in lines
    assert screen(page="out.html")[-1] == "The whole report: out.html"


def test_all_of_it_is_one_screen_of_80_columns_without_colours() -> None:
    found = [
        named(
            rule, cost, title="0.4 megapixels of a picture (JPEG) are decoded, and 0.01 are used: "
            "forty times as many as needed.", next="slipstream run --only native-pictures train.py",
            fix="Make the pictures smaller once (slipstream pack --max-side), or decode less.",
        )
        for rule, cost in (("oversized-decode", 40.0), ("no-workers", 20.0), ("no-amp", 10.0))
    ]  # fmt: skip
    rules = healthy(*(rule.name for rule in all_rules()))
    lines = screen(findings=found, healthy=rules, overhead={"share": 0.021}, page="report.html")
    assert len(lines) <= 30
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)
    assert "\x1b" not in "".join(lines)


def test_without_a_step_it_says_what_to_do() -> None:
    steps = {"count": 0, "mean_ms": 0.0, "low_ms": 0.0, "high_ms": 0.0}
    lines = screen(step_ms=0.0, steps=steps, parts={})
    assert any(line.startswith("→ Check that the script trains") for line in lines)
    assert "slipstream.diagnose()" in "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert not any("Check that" in line for line in screen())
