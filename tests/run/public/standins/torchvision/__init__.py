"""As much of torchvision as the scripts use, for machines without it."""

__version__ = "0.0"
