"""`Augment`: a pipeline for `Loader(transform=…)` without torchvision."""

from typing import Any

from slipstream.augment.ops import Op
from slipstream.errors import UsageError


class Augment:
    """Ops of `slipstream.augment`, one after the other, drawn from the loader's random numbers.

    >>> import slipstream
    >>> from slipstream.augment import RandomHorizontalFlip, RandomResizedCrop, ToTensor
    >>> slipstream.Augment(RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor())
    Augment(RandomResizedCrop, RandomHorizontalFlip, ToTensor)
    """

    def __init__(self, *ops: Op) -> None:
        for op in ops:
            if not isinstance(op, Op):
                raise UsageError(
                    f"Augment takes ops of slipstream.augment, got {type(op).__name__}. To mix them"
                    " with transforms of your own give the loader a list."
                )
        self.transforms = ops

    def __call__(self, picture: Any) -> Any:
        """All of them on one picture, with random numbers of torch's global generator."""
        for op in self.transforms:
            picture = op(picture)
        return picture

    def __repr__(self) -> str:
        """The names of the ops."""
        return f"Augment({', '.join(type(op).__name__ for op in self.transforms)})"
