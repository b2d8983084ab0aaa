"""The size of micro-batches: the knee of samples per second."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import slipstream
from slipstream.errors import UsageError
from slipstream.train.micro_batch import Point, knee_of, sizes_of
from slipstream.train.parts import expect_cuttable
from tests.clock import sleep
from tests.train.small import cross_entropy, net, pictures, pictures_net, rows, sgd


def test_sizes_go_down_by_halves() -> None:
    assert sizes_of(64) == [64, 32, 16, 8, 4, 2]
    assert sizes_of(5) == [5, 3, 2, 1]
    assert sizes_of(1) == [1]


def curve(*points: tuple[int, float, float | None]) -> list[Point]:
    return [Point(*point) for point in points]


def test_the_knee_is_the_smallest_that_loses_little() -> None:
    flat = curve((64, 100, 0.5), (32, 101, 0.6), (16, 96, 0.7), (8, 95, 0.8), (4, 60, 0.9))
    best, why = knee_of(flat)
    assert best.size == 16, "8 has 94 % of 32"
    assert why == (
        "the smallest with 95% of the most samples/s: it has 95%, and 70% of memory is free"
    )
    assert knee_of(curve((64, 100, 0.5), (32, 90, 0.6), (16, 50, 0.7)))[0].size == 64


def test_memory_has_to_be_left() -> None:
    best, _ = knee_of(curve((64, 200, 0.02), (32, 100, 0.3), (16, 97, 0.6)))
    assert best.size == 16, "64 is fast but full: it is no measure either"
    best, why = knee_of(curve((64, 200, 0.02), (32, 100, 0.05)))
    assert (best.size, why) == (32, "no size leaves 10% of memory free; this leaves most")
    assert knee_of(curve((64, 100, None), (32, 99, None)))[0].size == 32


class Costly(nn.Module):
    """Twice as fast up to sixteen samples, and as long for fewer of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = net()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        sleep(0.4 if len(inputs) <= 16 else 0.05 * len(inputs))
        found: torch.Tensor = self.layers(inputs)
        return found


@pytest.mark.slow
@pytest.mark.usefixtures("told_times")
def test_a_tuned_step_has_the_size_of_the_knee() -> None:
    model = Costly()
    recipe = slipstream.tune_step(
        model, cross_entropy, sgd(model), rows(4, size=64), micro_batch="auto", only=[],
        budget_s=800.0,
    )  # fmt: skip
    assert recipe.choices.micro_batch == 16
    states = {row.name: row.state for row in recipe.rows}
    assert states["micro-batch 16"] == "kept"
    assert states["micro-batch 8"] == "slower"
    assert states["micro-batch 4"] == "slower"
    assert recipe.curve is not None
    assert recipe.curve.verdict != "different"
    assert "micro-batch 16" in recipe.name


def test_batch_norms_speak_against_micro_batches() -> None:
    model = pictures_net()
    recipe = slipstream.tune_step(
        model, cross_entropy, sgd(model), pictures(), micro_batch="auto", only=[], budget_s=20.0
    )
    [row] = [row for row in recipe.rows if row.name == "micro-batches"]
    assert row.state == "rejected"
    assert "batch norms see micro-batches" in row.why
    assert not recipe.is_changed


def test_a_size_as_written_is_the_step_as_written() -> None:
    model = net()
    recipe = slipstream.tune_step(
        model, cross_entropy, sgd(model), rows(), micro_batch=4, clip_norm=1.0, budget_s=0
    )
    assert not recipe.is_changed
    assert recipe.choices.micro_batch == 4
    assert recipe.choices.clip_norm == 1.0
    assert "range(0, size, 4)" in recipe.to_code()


def test_random_numbers_speak_against_micro_batches() -> None:
    model = nn.Sequential(nn.Linear(12, 64), nn.Dropout(0.1), nn.Linear(64, 5))
    recipe = slipstream.tune_step(
        model, cross_entropy, sgd(model), rows(), micro_batch="auto", only=[], budget_s=20.0
    )
    [row] = [row for row in recipe.rows if row.name == "micro-batches"]
    assert (row.state, "draws random numbers" in row.why) == ("rejected", True)


@dataclass
class Targets:
    values: torch.Tensor


@pytest.mark.parametrize("targets", [Targets(torch.zeros(4)), np.zeros(4)], ids=type)
def test_samples_that_would_be_left_whole_are_refused(targets: Any) -> None:
    with pytest.raises(UsageError, match="cannot be cut"):
        expect_cuttable({"x": torch.zeros(4, 2), "others": [targets]})
    assert expect_cuttable({"x": torch.zeros(4, 2), "scale": np.float64(2), "name": "a"}) == 4


@pytest.mark.parametrize("micro_batch", [2, "auto"])
def test_batches_that_cannot_be_cut_are_refused(micro_batch: Any) -> None:
    model = net()
    batch = (torch.zeros(4, 12), torch.zeros(3, dtype=torch.long))
    with pytest.raises(UsageError, match="cannot be cut"):
        slipstream.tune_step(
            model, cross_entropy, sgd(model), [batch], micro_batch=micro_batch, budget_s=0
        )


def test_a_dict_for_each_sample_is_not_cut() -> None:
    batch = (torch.zeros(2, 3), [{"boxes": torch.zeros(2, 4)}, {"boxes": torch.zeros(2, 4)}])
    with pytest.raises(UsageError, match="one for each sample"):
        expect_cuttable(batch)
    batch = (torch.zeros(2, 3), [torch.zeros(2, 4), torch.zeros(2, 4)])
    with pytest.raises(UsageError, match="2 tensors, which may be one for each sample"):
        expect_cuttable(batch)
    assert expect_cuttable([torch.zeros(2, 3), {"x": torch.zeros(2)}]) == 2
    assert (
        expect_cuttable((torch.zeros(2, 3), [torch.zeros(2), torch.zeros(2), torch.ones(2)])) == 2
    )
