"""Linear layers with int8 weights: really int8, compiled, and where they are most of a model."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.infer.change import Variant
from slipstream.infer.changes import compiled, layout, torchao
from slipstream.infer.gates.contract import contract
from slipstream.infer.gates.numeric import numeric
from slipstream.infer.gates.reference import reference_of
from slipstream.infer.inputs import Inputs
from slipstream.infer.subject import Subject

pytest.importorskip("torchao")

# Of torchao and the compiler, about themselves.
pytestmark = pytest.mark.filterwarnings("ignore")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 8)).eval()


@pytest.fixture
def subject() -> Subject:
    return Subject(network(), Inputs((torch.randn(20, 32),)))


def weights_of(model: Any) -> list[str]:
    return [type(p.weight).__name__ for p in model.modules() if isinstance(p, nn.Linear)]


@pytest.mark.slow
@pytest.mark.parametrize("change", [torchao.INT8_WEIGHTS, torchao.INT8_DYNAMIC])
def test_linear_layers_are_int8_and_give_nearly_the_same(subject: Subject, change: Any) -> None:
    made = Variant((change,)).build(subject)
    reference = reference_of(subject, [Inputs((torch.randn(3, 32),))])
    assert contract(made, reference) is None
    _, error = numeric(made, reference, "lossy")
    assert 1e-4 < error.rms < 0.05  # less would be the model itself
    assert weights_of(made) == ["Int8Tensor", "Int8Tensor"]
    assert weights_of(subject.model) == ["Parameter", "Parameter"]


@pytest.mark.slow
def test_inputs_are_multiplied_as_whole_numbers(subject: Subject) -> None:
    made = Variant((torchao.INT8_DYNAMIC,)).build(subject)
    subject.inputs(made)  # compiles
    with torch.profiler.profile() as profile:
        subject.inputs(made)
    assert "aten::_int_mm" in {event.key for event in profile.key_averages()}


def test_it_takes_the_place_of_another_engine_and_keeps_the_layout() -> None:
    before = Variant((layout.CHANNELS_LAST, compiled.COMPILE))
    assert before.plus(torchao.INT8_WEIGHTS).name == "channels-last + torchao int8 weights"
    assert before.plus(torchao.INT8_WEIGHTS).kind == "lossy"


def test_a_model_without_layers_for_it_is_refused(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    convolutions = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Flatten(), nn.Linear(64, 10))
    other = Subject(convolutions, Inputs((torch.ones(1, 3, 3, 3),)))
    for change in (torchao.INT8_WEIGHTS, torchao.INT8_DYNAMIC):
        assert change.why_not(subject) is None
        assert change.why_not(other) == "linear layers hold 26% of the parameters, less than half"
        assert "0%" in (change.why_not(Subject(nn.ReLU(), subject.inputs)) or "")
    with pytest.raises(RuntimeError, match="quantized no layer"):
        torchao.INT8_WEIGHTS.apply(nn.ReLU(), subject)
    monkeypatch.setattr(torchao, "find_spec", lambda name: None)
    why = torchao.INT8_WEIGHTS.why_not(subject)
    assert why == "torchao is not installed: pip install torchao"


@pytest.mark.slow
def test_torchao_is_loaded_when_it_is_used_and_says_nothing() -> None:
    script = (
        "import sys, slipstream.infer.known; from slipstream.infer.changes.torchao import torchao; "
        "assert not any(name.split('.')[0] == 'torchao' for name in sys.modules); "
        "torchao('quantization')"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100
    )
    assert said.stdout == said.stderr == ""
