"""The band of losses: who is inside and who is not."""

import math
import random

import pytest

from slipstream.run.band import FEWEST, LEAST, OUTSIDE, band_of, departure, smoothed

STEPS = 64


def curve(seed: int, *, factor: float = 1.0, noise: float = 0.2) -> list[float]:
    """A training run: it falls, batches scatter, and each seed begins a little elsewhere."""
    own = random.Random(seed)
    start = 1 + own.gauss(0, 0.05)
    return [
        factor * start * (1 + math.exp(-step / 20)) + own.gauss(0, noise) for step in range(STEPS)
    ]


def test_other_seeds_are_mostly_inside() -> None:
    """The hardest case: a run that has nothing in common with the script's own."""
    inside = 0
    for number in range(200):
        band = band_of([curve(1000 * number + run) for run in range(4)])
        assert band is not None
        inside += departure(band, curve(1000 * number + 99)) is None
    assert inside > 200 * 0.8


def test_the_same_seed_rounded_differently_is_inside() -> None:
    own = random.Random(0)
    for number in range(100):
        runs = [curve(1000 * number + run) for run in range(4)]
        band = band_of(runs)
        assert band is not None
        rounded = [
            loss * (1 + own.gauss(0, 1e-4) * 1.1**step) for step, loss in enumerate(runs[-1])
        ]
        assert departure(band, rounded) is None


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_what_learns_otherwise_is_outside(factor: float) -> None:
    caught = 0
    for number in range(100):
        runs = [curve(1000 * number + run) for run in range(4)]
        band = band_of(runs)
        assert band is not None
        caught += departure(band, curve(1000 * number + 3, factor=factor)) is not None
    assert caught >= 95


def test_a_script_that_draws_nothing_has_a_band_for_rounding() -> None:
    runs = [[2.0] * STEPS] * 4
    band = band_of(runs)
    assert band is not None
    assert departure(band, [2.0 * (1 + LEAST / 2)] * STEPS) is None
    found = departure(band, [2.0 * (1 + 2 * LEAST)] * STEPS)
    assert found == "loss leaves the band at step 1: 2.02, band 1.99 to 2.01"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_loss_that_is_no_number_is_enough(value: float) -> None:
    runs = [curve(run) for run in range(4)]
    band = band_of(runs)
    assert band is not None
    bad = [*runs[0][:-1], value]
    assert departure(band, bad) == f"loss is {value} at step {STEPS}"
    assert band_of([*runs[:3], bad]) is None  # and the script itself must have none


def test_some_passes_may_leave_it() -> None:
    band = band_of([[1.0] * STEPS] * 4)
    assert band is not None
    few = int(OUTSIDE * STEPS)
    assert departure(band, [1.0] * (STEPS - few) + [1.5] * few) is None
    assert departure(band, [1.0] * (STEPS - few - 1) + [1.5] * (few + 1)) is not None


def test_a_run_that_stops_early_is_not_inside() -> None:
    runs = [curve(run) for run in range(4)]
    band = band_of(runs)
    assert band is not None
    assert departure(band, runs[0][:20]) == f"it came to 20 losses, the script itself to {STEPS}"
    assert departure(band, runs[0][:20], is_cut=True) is None
    assert departure(band, [*runs[0][:17], 9.0, 9.0, 9.0], is_cut=True) is not None
    assert departure(band, runs[0][: FEWEST - 1], is_cut=True) is not None


def test_three_runs_besides_the_own_and_some_losses_are_needed() -> None:
    runs = [curve(run) for run in range(4)]
    assert band_of(runs[:3]) is None
    assert band_of([run[: FEWEST - 1] for run in runs]) is None
    band = band_of([*runs[:3], runs[3][:FEWEST]])
    assert band is not None and len(band) == FEWEST


def test_smoothing() -> None:
    assert smoothed([8.0, *[0.0] * 9]) == pytest.approx([8 / n for n in range(1, 9)] + [0, 0])
