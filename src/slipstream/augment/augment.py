"""`Augment`: a pipeline for `Loader(transform=…)` without torchvision."""

from collections.abc import Sequence
from typing import Any

from slipstream.augment.followers import Followers
from slipstream.augment.ops import Op
from slipstream.errors import UsageError


class Augment:
    """Ops of `slipstream.augment`, one after the other, drawn from the loader's random numbers.

    `masks`, `boxes` and `keypoints` name the fields of a dataset that follow its pictures through
    crops, resizes and flips: masks are pictures without loss or arrays [H, W] and come out as uint8
    or int64[N, H, W]; boxes [K, 4] (left, top, right, bottom) and keypoints [K, 2] (x, y), in
    pixels of the stored picture, come out as float32, as a list where samples differ in K. Boxes
    are clipped; those that lie outside stay, without area.

    >>> import slipstream
    >>> from slipstream.augment import RandomHorizontalFlip, RandomResizedCrop, ToTensor
    >>> slipstream.Augment(RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor())
    Augment(RandomResizedCrop, RandomHorizontalFlip, ToTensor)

    Called with bytes [N, 3, height, width] that are in memory already, on either device, it does
    the whole batch at once, each picture with random numbers of its own:

    >>> import torch
    >>> augment = slipstream.Augment(RandomHorizontalFlip(), ToTensor(torch.float16))
    >>> augment(torch.zeros((64, 3, 32, 32), dtype=torch.uint8)).dtype
    torch.float16
    """

    def __init__(
        self,
        *ops: Op,
        masks: Sequence[str] = (),
        boxes: Sequence[str] = (),
        keypoints: Sequence[str] = (),
    ) -> None:
        for op in ops:
            if not isinstance(op, Op):
                raise UsageError(
                    f"Augment takes ops of slipstream.augment, got {type(op).__name__}. To mix them"
                    " with transforms of your own give the loader a list."
                )
        self.transforms = ops
        self.followers = Followers(*(_names(kind) for kind in (masks, boxes, keypoints)))

    def __call__(self, picture: Any) -> Any:
        """All of them on one picture, or on each of a batch [N, 3, height, width], with random
        numbers of torch's global generator.
        """
        from slipstream.augment.single import apply_ops

        return apply_ops(self.transforms, picture)

    def __repr__(self) -> str:
        """The names of the ops."""
        return f"Augment({', '.join(type(op).__name__ for op in self.transforms)})"


def _names(given: Sequence[str]) -> Any:
    return given if isinstance(given, str) else tuple(given)
