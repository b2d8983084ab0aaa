"""Models with and without the faults that `slipstream lint` looks for."""

import torch
from torch import nn


def wide_convolution(into: int, out: int) -> nn.Sequential:
    """A 1x1 convolution behind one that gives it its channels."""
    return nn.Sequential(nn.Conv2d(3, into, 1), nn.Conv2d(into, out, 1, bias=False))


def convolution_in_groups(groups: int) -> nn.Conv2d:
    return nn.Conv2d(64, 64, 3, padding=1, groups=groups, bias=False)


class SideBySide(nn.Module):
    """Many linear layers that read the same input; or one."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.parts = nn.ModuleList(nn.Linear(8, 256 // count) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return torch.cat([part(x) for part in self.parts], 1)


class Branches(nn.Module):
    """Ways with layers of different kernels that meet in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 1)
        self.short = nn.Conv2d(16, 16, 1)
        self.long = nn.Sequential(nn.Conv2d(16, 8, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(16, 8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return torch.cat([self.short(x), self.long(x), self.pooled(x)], 1)


class Residual(nn.Module):
    """Three layers and a shortcut with one."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 32, 1))
        self.shortcut = nn.Conv2d(16, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        return self.main(x) + self.shortcut(x)


class Activations(nn.Module):
    """Almost all of its time goes into element-wise operators."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1000, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = torch.relu(x + 1.0) * 0.5
        return self.head(x[:1])


class ManySmall(nn.Module):
    """A hundred operators on a handful of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(100)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Switched(nn.Module):
    """Python decides on the values of a tensor: no graph can be exported."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Linear(16, 16)
        self.other = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.plain(x) if float(x.sum()) > 0 else self.other(x)


class Named(nn.Module):
    """Takes a dict of arguments, gives a dict of results."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": self.head(self.table(ids).mean(1)) * scale, "ids": ids}
