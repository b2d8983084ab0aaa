"""Batch norms are folded where that is right, and only there."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.fold import fold, folds_of
from slipstream.infer.inputs import inputs_of
from slipstream.infer.leaves import tensors_of
from slipstream.infer.subject import copied
from tests.infer.models import trained, zoo

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


FOLDS = {
    "resnet": 10, "mobilenet": 7, "unet": 7, "encoder": 0, "lstm": 0, "shared": 1,
    "used twice": 0, "branching": 0, "detector": 1,
}  # fmt: skip


def folded(model: nn.Module, example: object) -> tuple[nn.Module, int]:
    inputs = inputs_of(example)
    made = copied(model.eval())
    pairs = folds_of(made, inputs)
    fold(made, pairs)
    return made, len(pairs)


@pytest.mark.parametrize("name", FOLDS)
def test_all_that_can_be_and_nothing_else(name: str) -> None:
    model, example = zoo()[name]
    made, count = folded(model, example)
    assert count == FOLDS[name]
    inputs = inputs_of(example)
    for one, other in zip(tensors_of(inputs(made)), tensors_of(inputs(model)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    left = sum(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in made.modules())
    all_of_them = sum(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())
    assert left == all_of_them - count


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_every_convolution(kind: str, dimensions: int, bias: bool, groups: int) -> None:
    layer = getattr(nn, f"{kind}{dimensions}d")(8, 12, 3, groups=groups, bias=bias)
    norm = getattr(nn, f"BatchNorm{dimensions}d")(12)
    model = trained(nn.Sequential(layer, norm)).double().eval()
    example = torch.randn(2, 8, *[6] * dimensions, dtype=torch.float64)
    made, count = folded(model, example)
    assert count == 1
    torch.testing.assert_close(made(example), model(example), rtol=1e-12, atol=1e-12)


def test_linear_layers_of_two_dimensions_only() -> None:
    model = trained(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))).double().eval()
    example = torch.randn(3, 4, dtype=torch.float64)
    made, count = folded(model, example)
    assert count == 1
    torch.testing.assert_close(made(example), model(example), rtol=1e-12, atol=1e-12)
    # Its channels are the second dimension, not what the layer made.
    assert folded(model, torch.randn(3, 6, 4).double())[1] == 0


def test_norms_without_statistics_or_weights() -> None:
    convolution = nn.Conv2d(3, 4, 1)
    example = torch.randn(2, 3, 5, 5)
    none = nn.Sequential(convolution, nn.BatchNorm2d(4, track_running_stats=False)).eval()
    assert folded(none, example)[1] == 0
    plain = trained(nn.Sequential(convolution, nn.BatchNorm2d(4, affine=False))).eval()
    # Without weights the graph does not say whose statistics they are; as written it does.
    made, _ = folded(plain, example)
    torch.testing.assert_close(made(example), plain(example), rtol=1e-4, atol=1e-5)


def test_what_somebody_looks_at_stays() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))).eval()
    model[0].register_forward_hook(lambda *_: None)
    assert folded(model, torch.randn(1, 3, 4, 4))[1] == 0


def test_weights_that_are_computed_stay() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 1))
    model = trained(nn.Sequential(layer, nn.BatchNorm2d(4))).eval()
    inputs = inputs_of(torch.randn(1, 3, 4, 4))
    assert folds_of(model, inputs) == []


def test_a_model_that_cannot_be_exported_is_read_as_it_is_written() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.body(x)
            return y if float(y.sum()) > 0 else -y

    model = trained(Odd()).eval()
    example = torch.randn(2, 3, 4, 4)
    made, count = folded(model, example)
    assert count == 1
    torch.testing.assert_close(made(example), model(example), rtol=1e-4, atol=1e-5)


def test_one_layer_under_two_names() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            conv = nn.Conv2d(4, 4, 1)
            self.one = nn.Sequential(conv, nn.BatchNorm2d(4))
            self.other = nn.Sequential(conv, nn.BatchNorm2d(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.other(self.one(x))
            return y if float(y.sum()) > 0 else -y

    assert folded(trained(Twice()).eval(), torch.randn(2, 4, 3, 3))[1] == 0


class Stem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3))
        self.norm = trained(nn.BatchNorm2d(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.stem(x))  # type: ignore[no-any-return]


def test_a_hook_of_what_holds_the_layer_sees_the_same() -> None:
    model, example = Stem(), torch.randn(2, 3, 8, 8)
    assert folded(model, example)[1] == 1
    model.stem.register_forward_hook(lambda *_: None)
    assert folded(model, example)[1] == 0


def test_a_linear_layer_with_its_norm_refuses_more_dimensions() -> None:
    """The norm's channels would be others there."""
    model = nn.Sequential(nn.Linear(8, 16), trained(nn.BatchNorm1d(16)))
    made, count = folded(model, torch.randn(4, 8))
    assert count == 1
    with pytest.raises(UsageError, match="two dimensions; got 3"):
        made(torch.randn(4, 16, 8))
