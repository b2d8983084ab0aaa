"""What weights can be: whole numbers from -top to top, times a step for each output channel.

The numbers are symmetric and the step is proportional to the weights of the channel. So a factor
for each channel, such as that of a batch norm, changes only the step and maybe the signs, never
which numbers there are: to fold it before quantization or after it is the same.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from slipstream.errors import UsageError

Bits = Literal[8, 4, 2, "ternary", "binary"]

_SMALLEST_STEP = 1e-12


@dataclass(frozen=True)
class Format:
    """`gap` is 1 where zero is one of the numbers, and 2 where only odd ones are. The step is the
    one with the least squared error for weights with a normal distribution, `per_rms` times their
    root mean square; without it the largest weight of the channel becomes `top`.
    """

    name: str
    stored_bits: int
    top: int
    gap: int = 1
    per_rms: float | None = None

    def step_of(self, weight: torch.Tensor) -> torch.Tensor:
        """For each output channel, which comes first; with as many dimensions as the weight."""
        inner = tuple(range(1, weight.dim()))
        if self.per_rms is None:
            step = weight.abs().amax(inner, keepdim=True) / self.top
        else:
            step = weight.square().mean(inner, keepdim=True).sqrt() * self.per_rms
        known = torch.finfo(weight.dtype)
        return step.clamp(min=max(_SMALLEST_STEP, known.tiny * known.eps))

    def codes_of(self, weight: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Whole numbers, as floating-point."""
        first = self.gap - 1  # the smallest number that is not negative
        codes = ((weight / step - first) / self.gap).round() * self.gap + first
        return codes.clamp(-self.top, self.top)

    def quantized(self, weight: torch.Tensor) -> torch.Tensor:
        """The nearest weights of this format; gradients pass as if nothing had happened."""
        with torch.no_grad():
            step = self.step_of(weight)
            nearest = self.codes_of(weight, step) * step
        found: torch.Tensor = _StraightThrough.apply(weight, nearest)  # type: ignore[no-untyped-call]
        return found


class _StraightThrough(torch.autograd.Function):
    """The second tensor, with the gradient for the first. A sum of both would be rounded."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
        return nearest

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
        return gradients[0], None


FORMATS: dict[Bits, Format] = {
    8: Format("8 bit", 8, 127),
    4: Format("4 bit", 4, 7, per_rms=0.353),
    2: Format("2 bit", 2, 3, gap=2, per_rms=0.498),
    "ternary": Format("ternary", 2, 1, per_rms=1.224),
    "binary": Format("binary", 1, 1, gap=2, per_rms=0.798),
}


def format_of(bits: Bits) -> Format:
    """Raises `UsageError` for what is none."""
    if isinstance(bits, bool) or bits not in FORMATS:
        names = ", ".join(map(repr, FORMATS))
        raise UsageError(f"bits is {bits!r}; expected one of {names}.")
    return FORMATS[bits]


def packed(codes: torch.Tensor, form: Format) -> torch.Tensor:
    """Codes in as few bytes as they need; those of 8 bits stay int8, in their shape."""
    if form.stored_bits == 8:
        return codes.to(torch.int8)
    per_byte = 8 // form.stored_bits
    places = ((codes.flatten() + form.top) / form.gap).to(torch.uint8)
    places = torch.nn.functional.pad(places, (0, -places.numel() % per_byte))
    shifts = _shifts(form, places.device)
    return (places.reshape(-1, per_byte) << shifts).sum(1).to(torch.uint8)


def unpacked(stored: torch.Tensor, form: Format, shape: torch.Size) -> torch.Tensor:
    """Codes as int8, in their shape."""
    if form.stored_bits == 8:
        return stored
    mask = (1 << form.stored_bits) - 1
    places = (stored.unsqueeze(1) >> _shifts(form, stored.device)) & mask
    codes = places.flatten()[: shape.numel()].to(torch.int8) * form.gap - form.top
    return codes.reshape(shape)


def _shifts(form: Format, device: torch.device) -> torch.Tensor:
    return torch.arange(0, 8, form.stored_bits, dtype=torch.uint8, device=device)
