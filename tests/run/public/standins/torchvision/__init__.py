"""As much of torchvision as the scripts use, for machines without it."""

from torchvision import datasets, transforms

__version__ = "0.0"
__all__ = ["datasets", "transforms"]
