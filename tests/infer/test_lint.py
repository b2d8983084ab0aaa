"""`lint_model` as a whole: what it leaves alone, what it is given, what it says."""

import copy
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.lint.finding import Checked, Other, Report, Row
from slipstream.infer.lint.known import RULES
from slipstream.infer.lint.lint import lint_model
from slipstream.infer.lint.text import report_text
from slipstream.infer.lint.where import source_of
from slipstream.timing import Ratio
from tests.infer import lint_models

MEASURED = [name for name in RULES if not name.endswith("parameters")]


def test_the_callers_model_and_process_stay_as_they_were() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 9, 3), nn.BatchNorm2d(9), nn.Dropout(0.5), nn.Flatten(), nn.Linear(324, 5)
    )
    model.train()
    model[1].eval()
    model(torch.ones(2, 3, 8, 8)).sum().backward()
    model[4].bias.requires_grad_(False)
    before = copy.deepcopy(model)
    grads = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
    inputs = torch.randn(2, 3, 8, 8)
    same = inputs.clone()
    random, threads, enabled = torch.get_rng_state(), torch.get_num_threads(), True
    lint_model(model, inputs, seconds=2)
    assert torch.equal(random, torch.get_rng_state())
    assert threads == torch.get_num_threads()
    assert torch.is_grad_enabled() == enabled
    assert torch.equal(inputs, same)
    assert inputs.grad is None
    assert [part.training for part in model.modules()] == [
        part.training for part in before.modules()
    ]
    for (name, now), (_, then) in zip(
        model.state_dict().items(), before.state_dict().items(), strict=True
    ):
        assert torch.equal(now, then), name
    for each, grad in zip(model.parameters(), grads, strict=True):
        assert (each.grad is None) == (grad is None)
        assert grad is None or torch.equal(each.grad, grad)
    assert [each.requires_grad for each in model.parameters()] == [
        each.requires_grad for each in before.parameters()
    ]
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_a_model_that_cannot_be_exported() -> None:
    model = lint_models.Switched()
    with pytest.raises(Exception, match="data-dependent"):
        torch.export.export(model, (torch.ones(2, 16),), strict=False)
    report = lint_model(model, torch.ones(2, 16), seconds=2)
    assert report.gflops == pytest.approx(2 * 2 * 16 * 16 / 1e9)
    [unused] = [each for each in report.findings if each.rule == "unused-parameters"]
    assert [row.what for row in unused.rows] == ["weight 16x16, bias 16"]
    assert list(unused.rows[0].where) == [("other",)]


def test_arguments_by_name_and_results_in_a_dict() -> None:
    inputs = {"ids": torch.randint(0, 50, (3, 7)), "scale": torch.ones(3, 1)}
    report = lint_model(lint_models.Named(), inputs, seconds=2)
    assert report.inputs == "ids=3x7:int64, scale=3x1"
    assert [each.rule for each in report.checked] == list(RULES)
    states = {each.rule: each.state for each in report.checked}
    assert states["unused-parameters"] == states["never-updated-parameters"] == "nothing"


def test_compiled_models_are_looked_into() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    assert lint_model(compiled, torch.ones(2, 8), seconds=1.5).operators == 2


def test_the_limit_is_kept_and_what_was_not_measured_is_said() -> None:
    class Slow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(8, 8, 3, groups=8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.3)
            return self.layer(x)

    started = time.monotonic()
    report = lint_model(Slow(), torch.ones(1, 8, 4, 4), seconds=1.0)
    assert time.monotonic() - started < 10
    states = {each.rule: each for each in report.checked}
    assert states["launch-bound"].state == "unmeasured"
    assert states["grouped-convolution"].state == "unmeasured"
    assert "no time was left" in states["grouped-convolution"].rows[0].why
    text = str(report)
    assert "Not measured" in text
    assert "no time to time it in turns" in " ".join(text.split())
    assert report.model_ms > 300


def test_mistakes_are_explained() -> None:
    linear = nn.Linear(4, 4)
    with pytest.raises(UsageError, match=r"model is a function; expected a torch.nn.Module"):
        lint_model(lambda x: x, torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Linear cannot be called with 1x5: RuntimeError: mat1"):
        lint_model(linear, torch.ones(1, 5))
    with pytest.raises(UsageError, match=r"'odd' is no rule. Expected one of unequal-channels"):
        lint_model(linear, torch.ones(1, 4), ignore=["odd"])
    with pytest.raises(UsageError, match="seconds is 0"):
        lint_model(linear, torch.ones(1, 4), seconds=0)
    with pytest.raises(UsageError, match=r"parameters without a shape. Call it once"):
        lint_model(nn.LazyLinear(4), torch.ones(1, 4))


class Unused(nn.Module):
    """One layer is never called; another only in training."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.extra, self.lost = (nn.Linear(4, 4) for _ in range(3))
        self.register_buffer("table", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.main(x)
        return x + self.extra(x) if self.training else x


def parameters_of(model: nn.Module, inputs: torch.Tensor) -> dict[str, Checked]:
    report = lint_model(model, inputs, seconds=5, ignore=MEASURED)
    return {each.rule: each for each in report.checked}


def test_unused_parameters() -> None:
    found = parameters_of(Unused(), torch.ones(2, 4))["unused-parameters"]
    assert found.state == "finding"
    assert "2 parameters, 20 numbers or 80 bytes" in found.says
    assert [list(row.where) for row in found.rows] == [[("lost",)]]
    assert found.rows[0].source is not None
    assert found.rows[0].source.startswith("Unused, ")
    assert found.gain_ms is None


def test_whole_numbers_may_depend_on_what_has_no_gradient() -> None:
    class Labels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.box, self.label = nn.Linear(8, 4), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.box(x), self.label(x).argmax(-1)

    report = lint_model(Labels(), torch.randn(2, 8), seconds=1.0)
    (found,) = (each for each in report.checked if each.rule == "unused-parameters")
    assert "no floating-point result depends on them" in found.says
    assert not found.do.startswith("Remove")


def test_used_parameters_and_a_batch_that_training_refuses() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    found = parameters_of(model, torch.ones(1, 4))["unused-parameters"]
    assert (found.state, found.says) == ("nothing", "all of 4 parameters get a gradient")


def test_what_training_alone_may_use_is_not_called_unused() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main = nn.Linear(4, 4)
            self.aside = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

        def forward(self, x: torch.Tensor) -> Any:
            return (self.main(x), self.aside(x)) if self.training else self.main(x)

    rule = "unused-parameters"
    assert parameters_of(Auxiliary(), torch.ones(1, 4))[rule].state == "unmeasured"
    assert parameters_of(Auxiliary(), torch.randn(3, 4))[rule].state == "nothing"


def test_results_without_a_gradient() -> None:
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).argmax(1)

    found = parameters_of(Choice(), torch.ones(1, 4))["unused-parameters"]
    assert found.state == "unmeasured"
    assert "no result has a gradient" in found.says


def test_never_updated_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1000))
    rule = "never-updated-parameters"
    assert parameters_of(model, torch.ones(2, 4))[rule].state == "nothing"
    model[2].requires_grad_(False)
    found = parameters_of(model, torch.ones(2, 4))[rule]
    assert found.state == "finding"
    assert "2 parameters, 5,000 numbers or 20 kB" in found.says
    assert [row.what for row in found.rows] == ["weight 1000x4, bias 1000"]
    assert parameters_of(model.eval(), torch.ones(2, 4))[rule].state == "nothing"
    everything = nn.Linear(4, 4).requires_grad_(False)
    both = parameters_of(everything, torch.ones(2, 4))
    assert (both[rule].state, both["unused-parameters"].state) == ("nothing", "absent")


def made_report() -> Report:
    row = Row(
        "3x3 convolution 96 -> 96 in 96 groups on 16x96x112x112",
        [("features.2.block.1.convolution",), ("features.3.block.1.convolution",)] * 6,
        "InvertedResidual, models/mobile_network_of_the_house.py:112", 12, "gain",
        now_ms=1.08, flops=100, others=[Other("dense, 8 -> 12", 0.54, 101, Ratio(2.0, 1.9, 2.1))],
        best="dense, 8 -> 12", gain_ms=6.48, gain_low_ms=6.1, gain_high_ms=6.8,
    )  # fmt: skip
    late = Row("3x3 convolution", state="unmeasured", why="no time was left")
    checked = [
        Checked("grouped-convolution", "finding", "They are slower. " * 9, "Do less. " * 12,
                6.48, 6.1, 6.8, 0.07, [*(replace(row) for _ in range(5)), late]),
        Checked("odd-channels", "nothing", "", "", 0.0, 0.0, 0.0, 0.0, [row, replace(row)]),
        Checked("launch-bound", "unmeasured", "a call takes 9.0 s: there was no time"),
        Checked("bias-before-norm", "absent", "no bias before a batch or instance norm"),
    ]  # fmt: skip
    return Report("Net", "cpu with 2 threads", "16x3x224x224", 92.4, 212, 4.1, 41.0, checked)


def test_the_text_is_eighty_columns_wide() -> None:
    text = report_text(made_report())
    assert max(map(len, text.splitlines())) <= 80
    assert "92.4 ms a call in evaluation, 4.1 GFLOPs in 212 operators" in text
    assert "grouped-convolution: 6.48 ms (6.1 to 6.8), 7 % of a call" in text
    assert "12 x 1.08 ms; dense, 8 -> 12: 12 x 0.54 ms, 2.00 x (1.90 to 2.10)" in text
    assert "2 more (1 not measured: no time was left); --json has all" in text
    titles = ["1 finding.", "Checked, nothing to gain", "Not measured", "Not in this model"]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_the_report_is_json() -> None:
    told = json.loads(json.dumps(made_report().to_dict()))
    assert told["findings"] == ["grouped-convolution"]
    assert told["checked"][0]["rows"][0]["others"][0]["speed"]["low"] == 1.9
    assert told["model_ms"] == 92.4


def test_where_a_class_stands() -> None:
    model = nn.Sequential(nn.ReLU(), lint_models.Branches())
    said = source_of(model, "1.long.0")
    assert said is not None
    name, _, place = said.partition(", ")
    file, _, line = place.rpartition(":")
    assert name == "Branches"
    lines = Path(lint_models.__file__).read_text(encoding="utf-8").splitlines()
    assert lines[int(line) - 1] == "class Branches(nn.Module):"
    assert Path(file).name == "lint_models.py"
    assert source_of(model, "0") is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_gpu_a_graph_shows_what_starting_operators_takes() -> None:
    model = lint_models.ManySmall().cuda()
    report = lint_model(model, torch.ones(2, 4, device="cuda"), seconds=10)
    [launch] = [each for each in report.checked if each.rule == "launch-bound"]
    assert launch.state == "finding"
    assert launch.share is not None
    assert 0.2 < launch.share < 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_gpu_a_model_that_is_no_graph_is_said_to_be_none() -> None:
    inputs = torch.ones(2, 16, device="cuda")
    report = lint_model(lint_models.Switched().cuda(), inputs, seconds=10)
    [launch] = [each for each in report.checked if each.rule == "launch-bound"]
    assert launch.state == "unmeasured"
    assert "cannot be captured as a CUDA graph" in launch.says


def test_a_gain_and_its_interval_are_in_one_unit() -> None:
    found = Checked("g1-widths", "finding", "says", "do", 0.05, 0.02, 0.15, 0.1)
    told = report_text(Report("m", "cpu", "x", 0.5, 3, 0.1, 1.0, [found]))
    assert "g1-widths: 50 us (20 to 150), 10 % of a call" in told
