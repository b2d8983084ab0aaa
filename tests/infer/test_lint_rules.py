"""Each rule finds the fault in a model that has it, and none in one that has not."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.infer.lint.finding import Checked, Other, Row
from slipstream.infer.lint.known import RULES
from slipstream.infer.lint.lint import lint_model
from slipstream.infer.lint.measure import _judge
from slipstream.timing import Ratio
from tests.infer import lint_models


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """What other processes do to a second one is not what is tested."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def checked(rule: str, model: nn.Module, inputs: Any, seconds: float = 4.0) -> Checked:
    others = [name for name in RULES if name != rule]
    [found] = lint_model(model, inputs, seconds=seconds, ignore=others).checked
    assert found.rule == rule
    return found


def check_numbers(found: Checked) -> None:
    """What is said together follows from what was measured."""
    assert found.gain_ms is not None
    assert found.gain_low_ms is not None
    assert found.gain_high_ms is not None
    assert 0 < found.gain_low_ms <= found.gain_ms <= found.gain_high_ms
    gains = [row for row in found.rows if row.state == "gain"]
    assert found.gain_ms == pytest.approx(sum(row.gain_ms for row in gains))
    for row in gains:
        assert row.now_ms is not None
        assert row.flops is not None
        best = next(other for other in row.others if other.what == row.best)
        fair = min(1.0, best.flops / row.flops)
        assert best.ms == pytest.approx(row.now_ms / best.speed.value)
        assert row.gain_ms == pytest.approx(row.count * (fair * row.now_ms - best.ms))
        assert len(row.where) == row.count


def test_unequal_channels() -> None:
    found = checked(
        "unequal-channels", lint_models.wide_convolution(2, 2048), torch.ones(1, 3, 32, 32)
    )
    assert found.state == "finding"
    [row] = found.rows
    assert row.what == "1x1 convolution 2 -> 2048 on 1x2x32x32"
    assert row.best == "64 -> 64"
    assert list(row.where) == [("1",)]
    check_numbers(found)


def test_equal_channels() -> None:
    found = checked(
        "unequal-channels", lint_models.wide_convolution(64, 64), torch.ones(1, 3, 16, 16)
    )
    assert (found.state, found.rows) == ("absent", [])


def test_grouped_convolution() -> None:
    model = nn.Sequential(*[lint_models.convolution_in_groups(64) for _ in range(3)])
    found = checked("grouped-convolution", model, torch.ones(1, 64, 32, 32))
    assert found.state == "finding"
    [row] = found.rows  # three equal ones are measured once
    assert (row.count, row.best) == (3, "dense, 8 -> 8")
    assert list(row.where) == [("0",), ("1",), ("2",)]
    check_numbers(found)


def test_dense_convolution() -> None:
    model = lint_models.convolution_in_groups(1)
    assert checked("grouped-convolution", model, torch.ones(1, 64, 8, 8)).state == "absent"


def test_layers_side_by_side() -> None:
    found = checked("fragmented-blocks", lint_models.SideBySide(32), torch.ones(4, 8))
    assert found.state == "finding"
    row = found.rows[0]
    assert row.what.startswith("32 layers on the same input")
    assert row.best == "one linear 8 -> 256 on 4 rows"
    check_numbers(found)


def test_a_layer_alone() -> None:
    assert (
        checked("fragmented-blocks", lint_models.SideBySide(1), torch.ones(4, 8)).state == "absent"
    )


def test_small_layers_in_a_row() -> None:
    found = checked("fragmented-blocks", lint_models.ManySmall(), torch.ones(2, 4))
    assert found.state == "finding"
    assert found.rows[0].what.startswith("100 small layers in a row")
    check_numbers(found)


def test_element_wise_share() -> None:
    model = lint_models.Activations()
    found = checked("element-wise-share", model, torch.ones(200, 1000))
    assert found.state == "finding"
    assert found.share is not None
    assert 0.4 < found.share < 1.3
    assert {row.what for row in found.rows} >= {"relu on 200x1000", "add on 200x1000"}
    assert all(row.count == 10 for row in found.rows if row.what == "relu on 200x1000")


def test_layers_that_compute() -> None:
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
    inputs = torch.ones(256, 512)
    for rule in ("element-wise-share", "launch-bound"):
        found = checked(rule, model, inputs)
        assert found.state == "nothing", found
        assert found.share is not None
        assert 0 < found.share < 0.1


def test_launch_bound() -> None:
    found = checked("launch-bound", lint_models.ManySmall(), torch.ones(2, 4))
    assert found.state == "finding"
    assert found.share is not None
    assert found.share > 0.3
    linear = next(row for row in found.rows if row.what.startswith("linear layer"))
    assert linear.count == 100


def biased(bias: bool) -> nn.Sequential:
    # In double precision and with its channels last the bias of this one is a copy of its own.
    layers = nn.Sequential(nn.Conv2d(2, 64, 1, dilation=2, bias=bias), nn.BatchNorm2d(64))
    return layers.double().to(memory_format=torch.channels_last)


def test_bias_before_norm() -> None:
    inputs = torch.ones(1, 2, 64, 64, dtype=torch.float64)
    inputs = inputs.to(memory_format=torch.channels_last)
    found = checked("bias-before-norm", biased(True), inputs)
    [row] = found.rows
    assert found.state == "finding"
    assert row.best == "without bias"
    check_numbers(found)
    assert checked("bias-before-norm", biased(False), inputs).state == "absent"


def test_a_bias_that_is_used_twice_is_none_before_a_norm() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layer(x)
            return self.norm(x) + x

    assert checked("bias-before-norm", Both(), torch.ones(1, 3, 8, 8)).state == "absent"


def test_a_norm_along_another_dimension_takes_no_bias_away() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(6))
    assert checked("bias-before-norm", model, torch.ones(3, 6, 16)).state == "absent"
    flat = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64))
    assert checked("bias-before-norm", flat, torch.ones(3, 16)).state != "absent"


def half_linear_s(size: int) -> float:
    layer, row = nn.Linear(size, size, dtype=torch.float16), torch.ones(1, size).half()
    times = []
    with torch.no_grad():
        for _ in range(50):
            start = time.perf_counter()
            layer(row)
            times.append(time.perf_counter() - start)
    return min(times)


def test_odd_channels() -> None:
    if half_linear_s(65) < 4 * half_linear_s(64):
        pytest.skip("this processor multiplies 65 half-precision numbers as well as 64")
    model = nn.Sequential(nn.Linear(8, 65), nn.Linear(65, 65), nn.Linear(65, 65)).half()
    found = checked("odd-channels", model, torch.ones(1, 8).half())
    assert found.state == "finding"
    row = found.rows[0]
    assert row.what == "linear 65 -> 65 on 1 rows"
    assert [other.what for other in row.others] == ["up to 72 -> 72", "down to 64 -> 64"]
    assert row.best == "down to 64 -> 64"
    assert row.count == 2
    check_numbers(found)


def test_even_channels() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 1))
    assert checked("odd-channels", model, torch.ones(1, 3, 8, 8)).state == "absent"


@pytest.mark.parametrize(
    ("flops", "speed", "gain"),
    [
        (120, Ratio(1.5, 1.4, 1.6), 2 * 10 * (1 - 1 / 1.5)),  # does more, and is faster
        (50, Ratio(1.5, 1.4, 1.6), 0),  # does half, and is not twice as fast
        (50, Ratio(4.0, 3.8, 4.2), 2 * 10 * (0.5 - 1 / 4.0)),
        (100, Ratio(1.5, 1.05, 2.0), 0),  # not more than noise
    ],
)
def test_what_does_less_has_to_be_faster_by_more(flops: int, speed: Ratio, gain: float) -> None:
    row = Row("layer", count=2, now_ms=10.0, flops=100)
    row.others = [Other("other", 10 / speed.value, flops, speed)]
    _judge(row, least=1.1)
    assert row.gain_ms == pytest.approx(gain)
    assert row.state == ("gain" if gain else "none")
