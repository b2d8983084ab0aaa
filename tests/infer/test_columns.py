"""Small numbers beside large ones are judged by themselves."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.infer.gates.numeric import numeric
from tests.infer.test_gates import reference


class Detector(nn.Module):
    """Boxes in pixels and scores, beside each other in the last or the second dimension."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dim = dim
        self.body = nn.Sequential(nn.Linear(16, 32), nn.SiLU())
        self.boxes, self.scores = nn.Linear(32, 4), nn.Linear(32, 3)
        self.noise = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x)
        scores = (self.scores(x) - 4).sigmoid()
        scores = scores + self.noise * torch.linspace(-1, 1, x.shape[1], dtype=x.dtype)[:, None]
        return torch.cat([600 * self.boxes(x), scores], -1).movedim(-1, self.dim)


def rounded(model: nn.Module) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float()

    return call


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize("dim", [1, 2])
def test_scores_beside_boxes(dim: int) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 50, 16)
    model, wrong = Detector(dim), Detector(dim)
    known = reference(model, x)
    assert numeric(model, known, "exact")[0] is None
    assert numeric(rounded(model), known, "mixed")[0] is None
    wrong.noise = 0.05  # nothing beside boxes of hundreds
    why, error = numeric(wrong, known, "mixed")
    assert f"of dimension {dim} is" in str(why) and error.rms < 1e-3
    wrong.noise = 1e-5
    assert f"of dimension {dim} is" in str(numeric(wrong, known, "exact")[0])
    assert numeric(wrong, known, "mixed")[0] is None
    assert numeric(wrong, known, "lossy")[0] is None


class Differences(nn.Module):
    """A column that is the small difference of large numbers, one that is mostly nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = (1000 + x) - 1000
        return torch.stack([1000 * x, small, (x - 2).relu(), torch.zeros_like(x)], -1)


def test_columns_that_cannot_be_computed_well_are_not_asked_to_be() -> None:
    torch.manual_seed(1)
    x = torch.randn(200)
    known = reference(Differences(), x)

    def other_order(x: torch.Tensor) -> torch.Tensor:
        made = Differences()(x)
        made[:, 1] = (x - 1000) + 1000
        made[:, 2] += 1e-6
        made[:, 3] += 1e-9
        return made

    assert numeric(other_order, known, "exact")[0] is None


class Rare(nn.Module):
    """Scores of classes that are hardly ever there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([600 * x, (x - 12).sigmoid()], -1)


def test_libraries_may_compute_a_sigmoid_around_a_half() -> None:
    torch.manual_seed(1)
    known = reference(Rare(), torch.randn(200))

    def around(x: torch.Tensor, apart: float) -> torch.Tensor:
        made = Rare()(x)
        made[:, 1] += apart
        return made

    assert numeric(lambda x: around(x, 6e-8), known, "exact")[0] is None
    assert numeric(lambda x: around(x, 6e-7), known, "exact")[0] is not None


def test_a_model_of_few_bits_is_no_excuse_for_any_error() -> None:
    torch.manual_seed(1)
    model, wrong = Detector(2).bfloat16(), Detector(2).bfloat16()
    known = reference(model, torch.randn(2, 50, 16).bfloat16())
    wrong.noise = 0.5
    assert numeric(model, known, "mixed")[0] is None
    assert "of dimension 2 is" in str(numeric(wrong, known, "mixed")[0])
