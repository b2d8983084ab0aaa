"""RandAugment and TrivialAugment: one of fourteen changes, chosen for each picture."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from slipstream.augment import color, space
from slipstream.augment.batch_steps import Change, Parameters, apply_to_rows
from slipstream.augment.chain import has_triton
from slipstream.augment.draws import one_of
from slipstream.augment.levels import is_bytes, most
from slipstream.augment.steps import Random

Floats = npt.NDArray[np.float64]

NAMES = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color",
    "Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
)  # fmt: skip
_SIGNED = np.array([name in NAMES[1:10] for name in NAMES])[:, None]


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

    @functools.lru_cache(maxsize=64)  # noqa: B019 - of two, which are never freed anyway
    def table(self, bins: int, height: int, width: int) -> Floats:
        """The strength of each change in each bin, float64[14, bins, 2]: the second is the other
        way, for changes that have one.
        """
        up = np.linspace(0.0, 1.0, bins)
        sideways = self.translate + self.translate_share * width
        upright = self.translate + self.translate_share * height
        none, enhance = np.zeros(bins), self.enhance * up
        bits = np.rint(8 - np.arange(bins) / ((bins - 1) / (8 - self.fewest_bits)))
        there = np.stack([
            none, self.shear * up, self.shear * up, sideways * up, upright * up, self.rotate * up,
            enhance, enhance, enhance, enhance, bits, 1 - up, none, none,
        ])  # fmt: skip
        return np.stack([there, np.where(_SIGNED, -there, there)], axis=2)


RAND_AUGMENT = Strengths(0.3, 0.0, 150.0 / 331.0, 30.0, 0.9, 4)
TRIVIAL_AUGMENT = Strengths(0.99, 32.0, 0.0, 135.0, 0.99, 2)


@dataclass(frozen=True)
class AutoAugment:
    """`count` changes after one another, each one of fourteen, at the strength of `bin` of `bins`,
    or of any bin where that is None.

    Words of change k: which at 4 k, the sign at 4 k + 1, the bin at 4 k + 2. Parameters: `choice`
    int64[N, count], numbers in the table of strengths; what these stand for: `which` int64[N,
    count], numbers in `NAMES`, and `strength` float64[N, count], signed.
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
        back = words[:, 1::4] < 1 << 31
        return self.chosen((which * self.bins + chosen) * 2 + back, height, width)

    def chosen(self, choice: npt.NDArray[np.int64], height: int, width: int) -> Parameters:
        """The parameters that choices [N, count] stand for."""
        strength = self.strengths.table(self.bins, height, width).take(choice)
        numbers = {"choice": choice, "which": choice // (2 * self.bins), "strength": strength}
        return {name: torch.from_numpy(values) for name, values in numbers.items()}

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """Each change on the pictures that have it. The result is contiguous."""
        if pixels.is_cuda and is_bytes(pixels) and has_triton():
            from slipstream.augment.auto_fused import run_changes

            # Kernels are launched on the current device.
            with torch.cuda.device(pixels.device):
                return run_changes(pixels, drawn, self.strengths, self.bins)
        pixels = pixels.clone(memory_format=torch.contiguous_format)
        for turn in range(self.count):
            for number, name in enumerate(NAMES):
                rows = torch.nonzero(drawn["which"][:, turn] == number).view(-1)
                if name != "Identity" and len(rows):
                    apply_to_rows(pixels, rows, CHANGES[name], drawn["strength"][rows, turn])
        return pixels


def _rotation(degrees: Floats, height: int, width: int) -> tuple[npt.ArrayLike, ...]:
    """Counter-clockwise, about the middle."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    x, y = (width - 1) / 2, (height - 1) / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y


Matrix = Callable[[Floats, int, int], tuple[npt.ArrayLike, ...]]
# Of the changes of places, for a strength and the picture's height and width.
_MATRICES: dict[str, Matrix] = {
    "ShearX": lambda s, h, w: (1, s, s / 2, 0, 1, 0),
    "ShearY": lambda s, h, w: (1, 0, 0, s, 1, s / 2),
    "TranslateX": lambda s, h, w: (1, 0, -np.trunc(s), 0, 1, 0),
    "TranslateY": lambda s, h, w: (1, 0, 0, 0, 1, -np.trunc(s)),
    "Rotate": _rotation,
}
MOVES = tuple(_MATRICES)


def matrices(name: str, strength: Floats, height: int, width: int) -> torch.Tensor:
    """For `space.affine`, float64[N, 6], by the name of the change: one of `MOVES`."""
    rows = np.empty((len(strength), 6))
    for column, entry in enumerate(_MATRICES[name](strength, height, width)):
        rows[:, column] = entry
    return torch.from_numpy(rows)


def _moved(name: str) -> Change:
    def change(pixels: torch.Tensor, strength: torch.Tensor, /) -> torch.Tensor:
        amount = strength.numpy().astype(np.float64)
        return space.affine(pixels, matrices(name, amount, *pixels.shape[2:]))

    return change


def _enhanced(function: Change) -> Change:
    return lambda pixels, strength: function(pixels, 1.0 + strength)


CHANGES: dict[str, Change] = {
    **{name: _moved(name) for name in MOVES},
    "Brightness": _enhanced(color.adjust_brightness),
    "Color": _enhanced(color.adjust_saturation),
    "Contrast": _enhanced(color.adjust_contrast),
    "Sharpness": _enhanced(space.adjust_sharpness),
    "Posterize": lambda pixels, bits: color.posterize(pixels, bits.to(torch.int64)),
    "Solarize": lambda pixels, share: color.solarize(pixels, share * most(pixels)),
    "AutoContrast": lambda pixels, _: color.autocontrast(pixels),
    "Equalize": lambda pixels, _: color.equalize(pixels),
}
