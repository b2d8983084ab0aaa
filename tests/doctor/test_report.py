"""The report's verdict, and what it says of whole epochs."""

from dataclasses import replace
from typing import Any

import pytest

from slipstream.doctor.attribute import attribute
from slipstream.doctor.capture import BACKWARD, SAVE, Call, Capture, Span
from slipstream.doctor.report import make_report
from tests.doctor.made_case import made_case, made_loader


def test_epochs_and_samples() -> None:
    report = make_report(made_case(wait_ms=10, rest_ms=10, epochs=3, start_ms=50).capture)
    assert report["samples_per_s"] == pytest.approx(8 / 0.020)
    epoch = report["epoch"]
    assert epoch["steps"] == 40
    assert epoch["between_ms"] == pytest.approx(60)  # workers, and the first batch
    assert epoch["s"] == pytest.approx(40 * 0.020 + 0.060)


def test_what_is_not_known_of_epochs_is_none() -> None:
    once = make_report(made_case(wait_ms=10).capture)
    assert once["epoch"] == {"steps": 40, "between_ms": None, "s": pytest.approx(0.8)}
    endless = make_report(made_case(wait_ms=10, loader=made_loader(length=None)).capture)
    assert endless["epoch"] is None
    nothing = make_report(Capture("train.py", {}, ""))
    assert nothing["epoch"] is None
    assert nothing["samples_per_s"] is None


@pytest.mark.parametrize(
    ("ended", "said"),
    [("script", "ended"), ("error", "failed"), ("interrupted", "was interrupted")],
)
def test_without_a_step_the_verdict_says_how_it_ended(ended: str, said: str) -> None:
    verdict = make_report(Capture("train.py", {}, "", ended=ended))["verdict"]
    assert verdict == (
        f"No training step was seen: the script {said} before its second batch from a DataLoader"
        " or second step of an optimizer."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wait_ms": 10.0}, "A step takes 20.0 ms; for 50% of that time the model waits for data."),
        (
            {"wait_ms": 0.1},
            "A step takes 10.1 ms, most of it in the forward pass; nothing large holds it up.",
        ),
    ],
)
def test_the_verdict_is_a_plain_sentence(changes: dict[str, Any], said: str) -> None:
    assert make_report(made_case(**changes).capture)["verdict"] == said


def test_what_speaks_against_the_numbers_is_said() -> None:
    capture = made_case(wait_ms=10).capture
    assert make_report(capture)["notes"] == []
    capture.ended = "interrupted"
    capture.settings["used"] = {"own": 1.1, "others": 0.9, "cores": 2.0}
    assert make_report(capture)["notes"] == [
        "The script was interrupted: this is what was seen until then.",
        "Other programs took 0.9 of 2 cores meanwhile: times to rely on need a run alone.",
    ]
    hot = made_case(wait_ms=10).capture
    window_ns = len(attribute(hot).steps) * 20_000_000
    hot.replays = [{"name": "device", "processes": 1, "slowed": window_ns // 100}]
    assert make_report(hot)["notes"] == []
    hot.replays = [{"name": "device", "processes": 1, "slowed": window_ns // 4}]
    (note,) = make_report(hot)["notes"]
    assert note.startswith("For 25% of the time heat held the device's clocks down")
    few = made_case(wait_ms=10).capture
    few.spans = few.spans[:20]
    (note,) = make_report(few)["notes"]
    assert note.startswith("Only ") and "steps were seen" in note


def test_the_verdict_is_about_what_costs_most() -> None:
    capture = made_case(wait_ms=2.0, rest_ms=18.0).capture
    call = Call(0, "torch.save", "train.py:40", 40)
    capture.calls = [call]
    found = []
    for span in capture.spans:
        found.append(span)
        if span.kind == BACKWARD:
            middle = (span.start + span.end) // 2
            found[-1] = replace(span, end=middle)
            found.append(Span(SAVE, middle, span.end, 0))
    capture.spans = found
    report = make_report(capture)
    assert report["parts"]["loading"] / report["step_ms"] == pytest.approx(0.1, abs=0.01)
    assert report["findings"][0]["rule"] == "frequent-checkpoint"
    assert "mending frequent-checkpoint would save" in report["verdict"]


def test_a_command_says_that_the_script_had_arguments() -> None:
    capture = made_case(wait_ms=10.0, loader=made_loader(workers=0)).capture
    assert make_report(capture)["findings"][0]["next"].endswith(" train.py")
    capture.settings["arguments"] = 2
    assert make_report(capture)["findings"][0]["next"].endswith(" train.py ARGS")


def test_no_time_is_negative() -> None:
    capture = made_case(wait_ms=10.0).capture
    spans = capture.spans[: 1 + 3 * 5]
    late = [replace(s, start=s.start + 10**9, end=s.end + 10**9) for s in spans[10:]]
    capture.spans = [*spans[:10], *late]
    steps = make_report(capture)["steps"]
    assert steps["low_ms"] == 0 < steps["mean_ms"]
