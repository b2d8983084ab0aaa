"""A network that behaves otherwise where its pictures lie channels-last: faster, wrong, broken."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.clock import sleep
from tests.train.small import pictures

SLOW_S = 0.8
FAST_S = 0.0


def is_switched(images: torch.Tensor) -> bool:
    return images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()


class Odd(nn.Module):
    """Takes as long as it is told, and does what it is told with its features where it is
    switched.
    """

    def __init__(
        self, slow_s: float = SLOW_S, fast_s: float = FAST_S,
        change: Callable[[torch.Tensor], torch.Tensor] = lambda features: features,
    ) -> None:  # fmt: skip
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(4, 5)
        self.slow_s, self.fast_s, self.change = slow_s, fast_s, change

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.norm(self.conv(images)).tanh().mean((2, 3))
        sleep(self.fast_s if is_switched(images) else self.slow_s)
        if is_switched(images):
            features = self.change(features)
        found: torch.Tensor = self.out(features)
        return found


class Halved(torch.autograd.Function):
    """Right forward, and half of the gradient back."""

    @staticmethod
    def forward(ctx: Any, features: torch.Tensor) -> torch.Tensor:
        return features.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 0.5


def halved(features: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = Halved.apply(features)  # type: ignore[no-untyped-call]
    return found


def odd_batches() -> list[Any]:
    return pictures(8, size=4, side=6)
