"""Random generators that installed packages keep for themselves: a worker that lives on would go on
with them, where a new one begins with what the loop's process has.
"""

import pickle
import random
import sys
from typing import Any

import numpy as np
import torch

from slipstream.doctor.record.places import is_foreign

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator,
              torch.Generator)  # fmt: skip
_known: dict[type, bool] = {}


def states_of_packages() -> int:
    """Of those among the globals of modules, beside those that torch seeds in a worker: equal in
    processes that were forked, as long as nobody draws. Those of the script are looked for where
    its samples may see them.
    """
    seeded = {id(torch.default_generator), id(np.random.mtrand._rand), id(random._inst)}
    found = {
        id(value): value
        for module in [*sys.modules.values()]
        for value in _globals_of(module)
        if _is_generator(type(value)) and id(value) not in seeded and _is_of_package(module)
    }
    return hash(tuple(map(_state, found.values())))


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, np.random.RandomState):
        return pickle.dumps(generator.get_state(legacy=False))
    return pickle.dumps(getattr(generator, "bit_generator", generator).state)


def _is_generator(kind: type) -> bool:
    # By its class: objects that stand for others are asked for nothing.
    if kind not in _known:
        _known[kind] = issubclass(kind, GENERATORS) and not issubclass(kind, random.SystemRandom)
    return _known[kind]


def _is_of_package(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or is_foreign(file)


def _globals_of(module: Any) -> list[Any]:
    found = getattr(module, "__dict__", None)
    return (
        [*found.values()] if type(found) is dict and module is not sys.modules["__main__"] else []
    )
