"""Lists of arrays in one file, from one process to another."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from slipstream.infer.elsewhere.runtimes import Array


def save_lists(file: Path, lists: Mapping[int, Sequence[Array]]) -> None:
    """By number."""
    named = {
        f"{number}_{place}": array
        for number, arrays in lists.items()
        for place, array in enumerate(arrays)
    }
    np.savez(file, allow_pickle=False, **named)


def load_lists(file: Path) -> dict[int, list[Array]]:
    """Inverse of `save_lists`."""
    lists: dict[int, dict[int, Array]] = {}
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as named:
        for name in named:
            number, place = map(int, name.split("_"))
            lists.setdefault(number, {})[place] = named[name]
    return {number: [list_[n] for n in range(len(list_))] for number, list_ in lists.items()}
