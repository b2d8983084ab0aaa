"""Which requests for gradients are steps, where a script has neither an optimizer nor a loader."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

_FOR_GOOD = 50  # so many without the other: it is not asked for any more


class StepsByHand:
    """Is told of batches, backward passes and calls of `torch.autograd.grad`.

    Nothing else tells steps apart where weights are changed by hand, on batches that come from no
    loader, or have come from one once and for all. Calls of `grad` are steps where there are no
    backward passes; else they are a part of what these go through, such as a penalty.

    >>> steps = StepsByHand()
    >>> with steps.backward() as is_step:
    ...     is_step
    True
    >>> steps.saw_batch()
    >>> with steps.backward() as is_step:
    ...     is_step
    False
    """

    def __init__(self) -> None:
        self._since_batch = self._since_backward = math.inf
        self._under_way = 0

    @property
    def is_under_way(self) -> bool:
        """A backward pass that begins now lies in another one, as checkpoints have it."""
        return self._under_way > 0

    def saw_batch(self) -> None:
        """A loader gave one."""
        self._since_batch = 0

    @contextmanager
    def backward(self) -> Iterator[bool]:
        """Around one; gives whether it is a step."""
        if not self.is_under_way:
            self._since_backward = 0
        with self._asking() as is_step:
            yield is_step

    @contextmanager
    def grad(self) -> Iterator[bool]:
        """Around a call; gives whether it is a step."""
        if not self.is_under_way:
            self._since_backward += 1
        with self._asking() as is_step:
            yield is_step and self._since_backward > _FOR_GOOD

    @contextmanager
    def _asking(self) -> Iterator[bool]:
        is_outermost = not self.is_under_way
        self._since_batch += is_outermost
        self._under_way += 1
        try:
            yield is_outermost and self._since_batch > _FOR_GOOD
        finally:
            self._under_way -= 1
