"""The global random generators that samples are drawn from: torch's, Python's and NumPy's."""

import random
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

TORCH, PYTHON, NUMPY = range(3)
ALL = (TORCH, PYTHON, NUMPY)
_ELSEWHERE = 0x5EED5EED  # a seed
# A state for each generator that is meant: bytes or tuples, to compare and to pickle.
States = dict[int, Any]


def _torch_state() -> bytes:
    return bytes(torch.default_generator.get_state().numpy())


def _set_torch_state(state: bytes) -> None:
    torch.default_generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _numpy_state() -> tuple[Any, ...]:
    return _plain(np.random.get_state())


def _plain(state: Any) -> tuple[Any, ...]:
    name, key, *rest = state
    return name, key.tobytes(), *rest


def _set_numpy_state(state: tuple[Any, ...]) -> None:
    name, key, *rest = state
    np.random.set_state((name, np.frombuffer(key, dtype=np.uint32), *rest))


_READ: tuple[Callable[[], Any], ...] = (_torch_state, random.getstate, _numpy_state)
_WRITE: tuple[Callable[[Any], None], ...] = (_set_torch_state, random.setstate, _set_numpy_state)


def read_states(which: Any = ALL) -> States:
    """What these generators are at."""
    return {number: _READ[number]() for number in which}


def write_states(states: States) -> None:
    """Put generators there."""
    for number, state in states.items():
        _WRITE[number](state)


def changed(before: States, after: States, *, always: Collection[int] = ()) -> States:
    """Those of `after` that are not as in `before`, and these."""
    return {
        number: state
        for number, state in after.items()
        if number in always or before[number] != state
    }


def are_at(states: States) -> bool:
    """Whether the generators named are there now."""
    return all(_READ[number]() == state for number, state in states.items())


def can_be_kept() -> bool:
    """Whether NumPy's generator is the one that everybody has."""
    return bool(_numpy_state()[0] == "MT19937")


def others(which: Any) -> States:
    """States that these generators hardly ever have."""
    made: tuple[Callable[[], Any], ...] = (
        lambda: bytes(torch.Generator().manual_seed(_ELSEWHERE).get_state().numpy()),
        random.Random(_ELSEWHERE).getstate,
        lambda: _plain(np.random.RandomState(_ELSEWHERE).get_state()),
    )
    return {number: made[number]() for number in which}
