"""The classes lie where torchvision's do, so that workers find them by name."""

from tests.augment.standins import v1

globals().update(vars(v1))
__all__ = sorted(vars(v1))  # noqa: PLE0605
