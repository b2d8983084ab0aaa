"""Fewer bits in between: what comes out has the type that it had."""

from typing import Any

import pytest
import torch
from torch import nn

from slipstream.infer.changes.precision import Autocast, Converted


class Mixes(nn.Module):
    """As a layer does that takes a type of its own under autocast."""

    def __init__(self, own: torch.dtype | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        if own is not None:
            self.register_buffer("table", torch.zeros(2, dtype=own))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.layer(x)
        if torch.is_autocast_enabled(x.device.type):
            return y, y.to(torch.float16), (y > 0)
        return y, y, (y > 0)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize("make", [lambda m: Autocast(m, torch.bfloat16, "cpu"),
                                  lambda m: Converted(m, torch.bfloat16)])  # fmt: skip
def test_results_are_what_they_were(make: Any) -> None:
    torch.manual_seed(0)
    model, x = Mixes().eval(), torch.randn(3, 4)
    expected = [model(x)[0].detach(), model(x)[1].detach()]
    made = make(model)(x)
    assert [each.dtype for each in made] == [torch.float32, torch.float32, torch.bool]
    for one, other in zip(made, expected, strict=False):
        assert not torch.equal(one, other)  # it was computed with fewer bits
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_a_type_that_the_model_has_itself_stays() -> None:
    model, x = Mixes(torch.float16).eval(), torch.randn(3, 4)
    made = Autocast(model, torch.bfloat16, "cpu")(x)
    assert [each.dtype for each in made] == [torch.float32, torch.float16, torch.bool]
