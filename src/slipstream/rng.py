"""Random numbers of torch, NumPy and Python."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class Rng:
    """The states of all generators that a loss may draw from, at one moment."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if _uses_cuda() else []
        self._python = random.getstate()
        self._numpy: Any = np.random.get_state()

    def restore(self) -> None:
        """All of them as they were then."""
        torch.set_rng_state(self._cpu)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)
        random.setstate(self._python)
        np.random.set_state(self._numpy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rng) and (
            torch.equal(self._cpu, other._cpu)
            and all(map(torch.equal, self._devices, other._devices))
            and self._python == other._python
            and all(np.array_equal(*pair) for pair in zip(self._numpy, other._numpy, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]


def seed_torch(number: int) -> None:
    """torch's own generators. Those of devices that nobody has used yet are left alone: a seed
    would wait for them, in the place of the caller's, and cannot be taken back.
    """
    torch.default_generator.manual_seed(number)
    if _uses_cuda():
        torch.cuda.manual_seed_all(number)


def seed_all(number: int) -> None:
    """The same random numbers for the same number."""
    seed_torch(number)
    random.seed(number)
    np.random.seed(number)


@contextmanager
def rng_as_before() -> Iterator[None]:
    """Put all generators back behind a block."""
    before = Rng()
    try:
        yield
    finally:
        before.restore()


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
