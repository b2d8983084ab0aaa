"""How many pictures went which way, in this process and in those that were forked from it."""

import mmap
import os
from typing import Any

import numpy as np

_SLOTS = 64


class _Counts:
    table: Any = None


def start() -> None:
    """From zero."""
    # Shared with forked workers. Each process has its own row, nearly always.
    shared = mmap.mmap(-1, _SLOTS * 16)
    _Counts.table = np.frombuffer(shared, dtype=np.int64).reshape(_SLOTS, 2)


def add(*, by_engine: bool) -> None:
    """One more."""
    if _Counts.table is not None:
        _Counts.table[os.getpid() % _SLOTS, int(by_engine)] += 1


def total() -> tuple[int, int]:
    """By the engine, by Pillow. Spawned workers are not counted."""
    if _Counts.table is None:
        return 0, 0
    by_pillow, by_engine = _Counts.table.sum(axis=0).tolist()
    return by_engine, by_pillow
