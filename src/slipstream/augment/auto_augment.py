"""RandAugment and TrivialAugment: one of fourteen changes, chosen for each picture."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from slipstream.augment import color, space
from slipstream.augment.batch_steps import Change, Parameters, apply_to_rows
from slipstream.augment.draws import one_of, unit
from slipstream.augment.levels import most
from slipstream.augment.steps import Random

Floats = npt.NDArray[np.float64]

NAMES = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color",
    "Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
)  # fmt: skip
_SIGNED = frozenset(NAMES[1:10])


@dataclass(frozen=True)
class Strengths:
    """How strong each change is at most, and for posterize how many bits at least. Translations
    are in pixels, or in shares of the picture's side where `translate_share` is given.
    """

    shear: float
    translate: float
    translate_share: float
    rotate: float
    enhance: float
    fewest_bits: int

    def table(self, bins: int, height: int, width: int) -> Floats:
        """The strength of each change in each bin, float64[14, bins]."""
        up = np.linspace(0.0, 1.0, bins)
        sideways = self.translate + self.translate_share * width
        upright = self.translate + self.translate_share * height
        none, enhance = np.zeros(bins), self.enhance * up
        bits = np.rint(8 - np.arange(bins) / ((bins - 1) / (8 - self.fewest_bits)))
        return np.stack([
            none, self.shear * up, self.shear * up, sideways * up, upright * up, self.rotate * up,
            enhance, enhance, enhance, enhance, bits, 1 - up, none, none,
        ])  # fmt: skip


RAND_AUGMENT = Strengths(0.3, 0.0, 150.0 / 331.0, 30.0, 0.9, 4)
TRIVIAL_AUGMENT = Strengths(0.99, 32.0, 0.0, 135.0, 0.99, 2)


@dataclass(frozen=True)
class AutoAugment:
    """`count` changes after one another, each one of fourteen, at the strength of `bin` of `bins`,
    or of any bin where that is None.

    Words of change k: which at 4 k, the sign at 4 k + 1, the bin at 4 k + 2. Parameters: `which`
    int64[N, count], numbers in `NAMES`, and `strength` float64[N, count], signed.
    """

    is_pointwise: ClassVar[bool] = False
    allows_flips: ClassVar[bool] = False
    strengths: Strengths
    count: int
    bin: int | None
    bins: int
    op: int

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """Which changes, and how strong."""
        words = random(self.op, self.count)
        which = one_of(words[:, 0::4], len(NAMES))
        chosen = one_of(words[:, 2::4], self.bins) if self.bin is None else self.bin
        strength = self.strengths.table(self.bins, height, width)[which, chosen]
        signed = np.array([name in _SIGNED for name in NAMES])[which]
        strength = np.where(signed & (unit(words[:, 1::4]) < 0.5), -strength, strength)
        return {"which": torch.from_numpy(which), "strength": torch.from_numpy(strength)}

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """Each change on the pictures that have it."""
        pixels = pixels.clone(memory_format=torch.contiguous_format)
        for turn in range(self.count):
            for number, name in enumerate(NAMES):
                rows = torch.nonzero(drawn["which"][:, turn] == number).view(-1)
                if name != "Identity" and len(rows):
                    apply_to_rows(pixels, rows, CHANGES[name], drawn["strength"][rows, turn])
        return pixels


def _moved(
    matrix: Callable[[Floats, int, int], tuple[npt.ArrayLike, ...]],
) -> Change:
    """A change of places, by its matrix for a strength and the picture's height and width."""

    def change(pixels: torch.Tensor, strength: torch.Tensor, /) -> torch.Tensor:
        amount = strength.numpy().astype(np.float64)
        entries = matrix(amount, pixels.shape[2], pixels.shape[3])
        rows = np.stack([np.broadcast_to(entry, amount.shape) for entry in entries], axis=1)
        return space.affine(pixels, torch.from_numpy(rows.astype(np.float64)))

    return change


def _rotation(degrees: Floats, height: int, width: int) -> tuple[npt.ArrayLike, ...]:
    """Counter-clockwise, about the middle."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    x, y = (width - 1) / 2, (height - 1) / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y


def _enhanced(function: Change) -> Change:
    return lambda pixels, strength: function(pixels, 1.0 + strength)


CHANGES: dict[str, Change] = {
    "ShearX": _moved(lambda s, h, w: (1, s, s / 2, 0, 1, 0)),
    "ShearY": _moved(lambda s, h, w: (1, 0, 0, s, 1, s / 2)),
    "TranslateX": _moved(lambda s, h, w: (1, 0, -np.trunc(s), 0, 1, 0)),
    "TranslateY": _moved(lambda s, h, w: (1, 0, 0, 0, 1, -np.trunc(s))),
    "Rotate": _moved(_rotation),
    "Brightness": _enhanced(color.adjust_brightness),
    "Color": _enhanced(color.adjust_saturation),
    "Contrast": _enhanced(color.adjust_contrast),
    "Sharpness": _enhanced(space.adjust_sharpness),
    "Posterize": lambda pixels, bits: color.posterize(pixels, bits.to(torch.int64)),
    "Solarize": lambda pixels, share: color.solarize(pixels, share * most(pixels)),
    "AutoContrast": lambda pixels, _: color.autocontrast(pixels),
    "Equalize": lambda pixels, _: color.equalize(pixels),
}
