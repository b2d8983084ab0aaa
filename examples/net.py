"""A small network to try these on:

slipstream optimize examples/net.py:make_model --input 8x3x64x64
slipstream lint examples/net.py:make_model --input 8x3x64x64
"""

from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Of the same shape."""
        return nn.functional.relu(x + self.inside(x))


def make_model() -> nn.Module:
    """Pictures in, scores of ten classes out."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), Block(32), Block(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ).eval()  # fmt: skip
