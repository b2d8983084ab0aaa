"""What activations can be: 2 to the `bits` equal steps between a lowest and a highest value."""

import torch
from torch import nn

_MOMENTUM = 0.1
_LOOKED_AT = 4096  # values of a batch
_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
_SMALLEST_STEP = 1e-8


class ActivationRange(nn.Module):
    """Quantizes what passes. In training the bounds follow the batches, as a moving average; in
    evaluation they stay. Zero is always one of the steps. Values outside are cut, and get no
    gradient; the others get theirs as if nothing had happened.

    With fewer than 8 bits the bounds are drawn in to where the squared error is least.
    """

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("low", torch.zeros((), dtype=torch.float32))
        self.register_buffer("high", torch.zeros((), dtype=torch.float32))

    @property
    def top(self) -> int:
        """The largest step; the smallest is 0."""
        return int(2**self.bits - 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The nearest values that there are."""
        if self.training and x.numel():
            self._follow(x.detach())
        step, zero = self.step_and_zero()
        found = torch.fake_quantize_per_tensor_affine(x.float(), step, zero, 0, self.top)
        return found.to(x.dtype)

    def step_and_zero(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The size of a step, and which step is zero."""
        return _step_and_zero(self.low.float(), self.high.float(), self.top)

    def _follow(self, x: torch.Tensor) -> None:
        low, high = _bounds(x.float())
        if self.bits < 8:
            low, high = _drawn_in(x.float(), low, high, self.top)
        # The first batch is taken as it is, and one that overflows is passed over.
        momentum = torch.where(self.high > self.low, _MOMENTUM, 1.0).float()
        is_finite = torch.isfinite(low) & torch.isfinite(high)
        for bound, seen in ((self.low, low), (self.high, high)):
            bound.copy_(torch.where(is_finite, torch.lerp(bound.float(), seen, momentum), bound))


def _bounds(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = torch.aminmax(x)
    return low.clamp(max=0), high.clamp(min=0)


def _step_and_zero(
    low: torch.Tensor, high: torch.Tensor, top: int
) -> tuple[torch.Tensor, torch.Tensor]:
    step = ((high - low) / top).clamp(min=_SMALLEST_STEP)
    return step, (-low / step).round().clamp(0, top).to(torch.int32)


def _drawn_in(
    x: torch.Tensor, low: torch.Tensor, high: torch.Tensor, top: int
) -> tuple[torch.Tensor, torch.Tensor]:
    seen = x.flatten()[:: max(1, x.numel() // _LOOKED_AT)]
    errors = []
    for share in _SHARES:
        step, zero = _step_and_zero(low * share, high * share, top)
        cut = torch.fake_quantize_per_tensor_affine(seen, step, zero, 0, top)
        errors.append((cut - seen).square().mean())
    best = torch.tensor(_SHARES, dtype=x.dtype, device=x.device)[torch.stack(errors).argmin()]
    return low * best, high * best
