"""Models whose own `train` returns nothing, and a default device that is another one."""

import pytest
import torch
from torch import nn

import slipstream
from slipstream.infer.compress import compress
from slipstream.infer.inputs import Inputs, other_values
from slipstream.infer.lint.lint import lint_model
from slipstream.infer.qat import convert_qat, prepare_qat
from slipstream.train.average import Average

X = torch.ones(2, 8)


class Frozen(nn.Module):
    """As those who keep a part in evaluation write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 2)

    def train(self, mode: bool = True) -> None:  # type: ignore[override]
        super().train(mode)
        self.first.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.second(self.first(x)))
        return found


def test_lint() -> None:
    report = lint_model(Frozen(), X, seconds=2.0)
    [unused] = [one for one in report.checked if one.rule == "unused-parameters"]
    assert unused.state == "nothing"


def test_optimize_and_load(tmp_path: pytest.TempPathFactory) -> None:
    model = Frozen()
    found = slipstream.optimize_model(model, X, budget_s=0)
    assert found.model(X).shape == (2, 2)
    found.save(str(tmp_path))
    assert slipstream.infer.load(str(tmp_path), model)(X).shape == (2, 2)


def test_compress() -> None:
    def score(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(batch))

    found = compress(Frozen(), X, 0.5, lambda made: made.train(), score, [X] * 30)
    assert found.pruned is not None
    assert found.pruned.second.out_features == 16


def test_quantization_aware_training() -> None:
    trained = prepare_qat(Frozen(), X, bits=4)
    assert [line.weights for line in convert_qat(trained).report.lines] == [
        "float", "4 bit", "float",
    ]  # fmt: skip


def test_averages() -> None:
    assert not Average(Frozen(), 0.9).model.training


@pytest.mark.parametrize(
    "tensor", [torch.randn(4, 3), torch.arange(9), torch.tensor([True, False, True])]
)
def test_other_inputs_are_made_on_the_processor(tensor: torch.Tensor) -> None:
    expected = other_values(Inputs((tensor,)), 1).args[0]
    with torch.device("meta"):
        made = other_values(Inputs((tensor,)), 1).args[0]
    assert torch.equal(made, expected)
