"""Small models with a loss, an optimizer and batches, for tests of training steps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]


def net(seed: int = 0) -> nn.Sequential:
    """Two linear layers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))


def pictures_net(seed: int = 0, norm: bool = True, width: int = 8) -> nn.Sequential:
    """Convolutions, with or without batch norms."""
    torch.manual_seed(seed)
    norms = [nn.BatchNorm2d(width) if norm else nn.Identity() for _ in range(2)]
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), norms[0], nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), norms[1], nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 5),
    )  # fmt: skip


def rows(count: int = 8, size: int = 16, dtype: torch.dtype = torch.float32) -> list[Batch]:
    """Batches for `net`."""
    own = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 12, generator=own).to(dtype),
            torch.randint(0, 5, (size,), generator=own),
        )
        for _ in range(count)
    ]


def pictures(count: int = 8, size: int = 8, side: int = 12) -> list[Batch]:
    """Batches for `pictures_net`."""
    own = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 3, side, side, generator=own),
            torch.randint(0, 5, (size,), generator=own),
        )
        for _ in range(count)
    ]


def cross_entropy(model: Any, batch: Any) -> torch.Tensor:
    """The loss of most tests."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def adamw(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, **options)


def sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, **options})


def losses_of(step: Callable[[Any], torch.Tensor], batches: list[Batch]) -> list[float]:
    """Of training on them, one after another."""
    return [float(step(batch)) for batch in batches]


def same_bits(one: Any, other: Any) -> bool:
    """Whether two nested states are the same, bit for bit."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and one.stride() == other.stride()
            and torch.equal(one, other)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_bits(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same_bits, one, other))
    return bool(one == other)
