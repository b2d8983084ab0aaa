"""A short training: inside the band of the step as written, or outside."""

import math
from dataclasses import replace
from typing import Any

import pytest

from slipstream.train.choices import Choices
from slipstream.train.curve import FEWEST, Run, judge, judge_most, runs_as_written, train
from slipstream.train.snapshot import Snapshot
from slipstream.train.subject import Subject
from tests.train.small import adamw, cross_entropy, net, rows

STEPS = 40


def subject_of() -> Subject:
    model = net()
    return Subject(model, adamw(model), cross_entropy, tuple(rows(8)), Choices())


def run_of(choices: Choices = Choices(), change: Any = None) -> Run:  # noqa: B008
    subject = subject_of()
    step = subject.build(choices)
    if change is not None:
        step.optimizer.param_groups[0].update(change)
    return train(step, Snapshot(step), subject.batches, STEPS)


@pytest.fixture(scope="module")
def written() -> list[Run]:
    subject = subject_of()
    step = subject.build(Choices())
    return runs_as_written(step, Snapshot(step), subject.batches, STEPS)


def test_the_runs_that_make_the_band_differ(written: list[Run]) -> None:
    assert len(written) == 4
    assert len({run.losses for run in written}) == 4
    assert written[0] == run_of()
    assert written[0].losses[-1] < written[0].losses[0]


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")
@pytest.mark.parametrize("choices", [
    Choices(), Choices("fused"), Choices("foreach"), Choices(precision="bf16"),
    Choices(precision="fp16"), Choices(micro_batch=4),
], ids=lambda choices: choices.name)  # fmt: skip
def test_the_same_training_is_equivalent(written: list[Run], choices: Choices) -> None:
    found = judge(written, run_of(choices))
    assert (found.verdict, found.why) == (
        "equivalent",
        "40 losses inside the band of 4 runs",
    )
    assert found.steps == STEPS


@pytest.mark.parametrize("change", [{"lr": 0.005}, {"lr": 0.02}, {"weight_decay": 3.0}])
def test_another_training_is_different(written: list[Run], change: Any) -> None:
    found = judge(written, run_of(change=change))
    assert found.verdict == "different"
    assert "loss leaves the band at step" in found.why


def test_what_shows_nothing_is_said_so(written: list[Run]) -> None:
    run = written[0]
    short = Run(run.losses[: FEWEST - 1], run.norms[: FEWEST - 1])
    assert judge(written, short).verdict == "not shown"
    assert "23 steps" in judge(written, short).why
    broken = replace(run, losses=(math.nan, *run.losses[1:]))
    assert judge([broken, *written[1:]], run).verdict == "not shown"
    far = replace(run, losses=tuple(9 * loss for loss in run.losses))
    found = judge([far, *written[1:]], run)
    assert found.verdict == "not shown"
    assert "of the loss themselves" in found.why


def test_losses_norms_and_skips_all_count(written: list[Run]) -> None:
    run = written[0]
    broken = replace(run, losses=(*run.losses[:-1], math.nan))
    assert judge(written, broken).why == "loss is nan at step 40"
    loud = replace(run, norms=tuple(2 * norm for norm in run.norms))
    assert "norm of its gradient" in judge(written, loud).why
    skipped = replace(run, skipped=2)
    found = judge(written, skipped)
    assert (found.verdict, found.why[:29]) == ("different", "2 of 40 updates were skipped,")


def test_of_several_trainings_most_decide(written: list[Run]) -> None:
    run = written[0]
    bad = replace(run, losses=(math.nan,) * STEPS)
    assert judge_most(written, [run, bad, run]).verdict == "equivalent"
    assert judge_most(written, [bad, bad, run]).verdict == "different"
    assert judge_most(written, [run]).verdict == "equivalent"


def test_overflows_are_counted_behind_the_first_quarter() -> None:
    subject = subject_of()
    step = subject.build(Choices(precision="fp16"))
    inputs, labels = subject.batches[0]
    wild = [(inputs * 1e30, labels), subject.batches[1], subject.batches[2], subject.batches[3]]
    assert train(step, Snapshot(step), wild, STEPS).skipped == 7, (
        "10 of them, 3 in the first quarter"
    )
