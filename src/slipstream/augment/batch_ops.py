"""Transforms that the loader runs on whole batches, where the batch is. They mean what
torchvision's mean, on bytes before ToTensor and on floats between 0 and 1 behind it.
"""

from dataclasses import dataclass

from slipstream.augment import batch_rules
from slipstream.augment.draft import check_op
from slipstream.augment.ops import Op

Amount = float | tuple[float, float]


@dataclass(frozen=True)
class ColorJitter(Op):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    An amount a stands for a factor between 1 - a and 1 + a, for `hue` for a turn between -a and a
    (0.5 at most); a pair is the range itself.

    >>> ColorJitter(0.4, 0.4, 0.4, 0.1)
    ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
    """

    brightness: Amount = 0.0
    contrast: Amount = 0.0
    saturation: Amount = 0.0
    hue: Amount = 0.0

    def __post_init__(self) -> None:
        check_op(self, batch_rules.jitter, self, 0)


@dataclass(frozen=True)
class RandomGrayscale(Op):
    """Grey, in three equal channels, with probability `p`."""

    p: float = 0.1

    def __post_init__(self) -> None:
        check_op(self, batch_rules.grayscale, self, 0)


@dataclass(frozen=True)
class GaussianBlur(Op):
    """Blurred by a Gaussian of `kernel_size` pixels, odd, or (width, height), with a standard
    deviation in `sigma`.
    """

    kernel_size: int | tuple[int, int]
    sigma: Amount = (0.1, 2.0)

    def __post_init__(self) -> None:
        check_op(self, batch_rules.blur, self, 0)


@dataclass(frozen=True)
class RandomErasing(Op):
    """A box of `value`, one number or three, put over the picture with probability `p`. It takes a
    share of the area in `scale`, with a ratio of height to width in `ratio`. `value` is in the
    units of the pixels where this stands: bytes before ToTensor, normalized behind Normalize.
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | tuple[float, float, float] = 0.0

    def __post_init__(self) -> None:
        check_op(self, batch_rules.erase, self, 0)


@dataclass(frozen=True)
class RandAugment(Op):
    """`num_ops` of fourteen changes after one another, of strength `magnitude`, from 0 to
    `num_magnitude_bins` - 1.

    https://arxiv.org/abs/1909.13719. Pixels are moved to the nearest place, black comes in.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        check_op(self, batch_rules.rand_augment, self, 0)


@dataclass(frozen=True)
class TrivialAugmentWide(Op):
    """One of fourteen changes, of any of `num_magnitude_bins` strengths.

    https://arxiv.org/abs/2103.10158.
    """

    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        check_op(self, batch_rules.trivial_augment, self, 0)


@dataclass(frozen=True)
class Mixup(Op):
    """Each picture mixed with the one before it in the batch, the first with the last, and so the
    labels: the field `label` becomes float32[N, num_classes].

    The share that is a picture's own is drawn from Beta(alpha, alpha), once for a batch. Only
    batches of the engine can be mixed. Behind ToTensor.

    >>> Mixup(0.2, num_classes=1000)
    Mixup(alpha=0.2, num_classes=1000, label='label')
    """

    alpha: float = 1.0
    num_classes: int | None = None  # to be given
    label: str = "label"

    def __post_init__(self) -> None:
        check_op(self, batch_rules.mix, self, 0)


@dataclass(frozen=True)
class CutMix(Op):
    """A box of each picture replaced by that of the one before it in the batch, and the labels
    mixed by area: the field `label` becomes float32[N, num_classes].

    One box for a batch; the share that it leaves is drawn from Beta(alpha, alpha), and is less
    where the box reaches over an edge. Only batches of the engine can be mixed.
    """

    alpha: float = 1.0
    num_classes: int | None = None  # to be given
    label: str = "label"

    def __post_init__(self) -> None:
        check_op(self, batch_rules.cut, self, 0)
