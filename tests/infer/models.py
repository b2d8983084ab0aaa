"""Small models of the kinds that people have."""

from typing import Any, NamedTuple

import torch
from torch import nn


class Residual(nn.Module):
    """A ResNet's basic block."""

    def __init__(self, width: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = (
            nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride != 1 or width != out
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (x if self.down is None else self.down(x)))


def resnet(width: int = 16, blocks: int = 2) -> nn.Module:
    parts: list[nn.Module] = [
        nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
    ]  # fmt: skip
    for stage in range(2):
        for number in range(blocks):
            first = stage > 0 and number == 0
            before = width << (stage - 1) if first else width << stage
            parts.append(Residual(before, width << stage, 2 if first else 1))
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10)]
    return trained(nn.Sequential(*parts))


def mobilenet(width: int = 16) -> nn.Module:
    """Depthwise convolutions between pointwise ones."""
    parts: list[nn.Module] = [
        nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU6(),
    ]  # fmt: skip
    for out in (width, 2 * width, 2 * width):
        before = parts[-2].num_features
        parts += [
            nn.Conv2d(before, before, 3, 1, 1, groups=before, bias=False),
            nn.BatchNorm2d(before), nn.ReLU6(),
            nn.Conv2d(before, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU6(),
        ]  # fmt: skip
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10)]
    return trained(nn.Sequential(*parts))


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = self._two(3, width)
        self.middle = self._two(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.norm = nn.BatchNorm2d(width)
        self.out = self._two(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _two(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = self.down(x)
        low = self.middle(nn.functional.max_pool2d(high, 2))
        return self.head(self.out(torch.cat([high, self.norm(self.up(low))], 1)))


class Encoder(nn.Module):
    """A transformer's encoder over token numbers, with arguments by name."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 5)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.layers(self.embed(ids) * scale)
        return {"logits": self.head(hidden.mean(1)), "hidden": hidden}


class Lstm(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, width, 2, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, (hidden, _) = self.lstm(x)
        return self.head(y[:, -1]), hidden


class SharedConv(nn.Module):
    """One convolution, two places, two batch norms: none can be folded into it."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.one = nn.BatchNorm2d(width)
        self.other = nn.BatchNorm2d(width)
        self.own = nn.Conv2d(width, width, 1)
        self.own_norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.one(self.conv(x)))
        return self.own_norm(self.own(self.other(self.conv(y))))


class UsedTwice(nn.Module):
    """What the convolution gives is seen by more than its batch norm."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.norm(y) + y


class Branching(nn.Module):
    """Which way it goes depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.positive = nn.Linear(4, 4)
        self.negative = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.positive(x) if float(x.sum()) > 0 else self.negative(x)


class Boxes(NamedTuple):
    boxes: torch.Tensor
    scores: torch.Tensor


class Detector(nn.Module):
    """A named tuple out of a dict of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU())
        self.boxes = nn.Conv2d(8, 4, 1)
        self.scores = nn.Conv2d(8, 1, 1)

    def forward(self, given: dict[str, torch.Tensor]) -> Boxes:
        y = self.body(given["picture"])
        return Boxes(self.boxes(y), self.scores(y).sigmoid())


def trained(model: nn.Module, seed: int = 0) -> nn.Module:
    """With batch norms as they are behind training: their statistics are no ones and zeros."""
    own = torch.Generator().manual_seed(seed)
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            size = part.running_mean.shape
            part.running_mean.copy_(torch.randn(size, generator=own) * 0.2)
            part.running_var.copy_(torch.rand(size, generator=own) + 0.5)
            if part.weight is not None:
                part.weight.data.copy_(torch.rand(size, generator=own) + 0.5)
                part.bias.data.copy_(torch.randn(size, generator=own) * 0.2)
    return model


def zoo() -> dict[str, tuple[nn.Module, Any]]:
    """Models with an example of what they take."""
    torch.manual_seed(0)
    return {
        "resnet": (resnet(), torch.randn(2, 3, 32, 32)),
        "mobilenet": (mobilenet(), torch.randn(2, 3, 32, 32)),
        "unet": (trained(UNet()), torch.randn(1, 3, 32, 32)),
        "encoder": (Encoder(), {"ids": torch.randint(0, 100, (2, 12)), "scale": torch.ones(1)}),
        "lstm": (Lstm(), torch.randn(3, 7, 8)),
        "shared": (trained(SharedConv()), torch.randn(2, 8, 16, 16)),
        "used twice": (trained(UsedTwice()), torch.randn(2, 8, 16, 16)),
        "branching": (Branching(), torch.randn(3, 4)),
        "detector": (trained(Detector()), ({"picture": torch.randn(2, 3, 32, 32)},)),
    }
