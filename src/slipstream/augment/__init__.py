"""Transforms of pictures: what of a pipeline the native engine can do, and the rest."""

from slipstream.augment.batch_ops import (
    ColorJitter,
    CutMix,
    GaussianBlur,
    Mixup,
    RandAugment,
    RandomErasing,
    RandomGrayscale,
    TrivialAugmentWide,
)
from slipstream.augment.ops import (
    CenterCrop,
    Normalize,
    PILToTensor,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
)

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "CutMix",
    "GaussianBlur",
    "Mixup",
    "Normalize",
    "PILToTensor",
    "RandAugment",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToTensor",
    "TrivialAugmentWide",
]
