"""Random generators that installed packages keep for themselves: a worker that lives on would go on
with them, where a new one begins with what the loop's process has.
"""

import random
import sys
from typing import Any

import numpy as np
import torch

from slipstream.doctor.record.places import is_foreign

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator,
              torch.Generator)  # fmt: skip
_known: dict[type, bool] = {}
_OF_TESTS = ("hypothesis", "torch.testing")


def has_generators_of_packages() -> bool:
    """Whether a module of one has any among its globals, beside those that torch seeds in a worker.
    Those of the script are looked for where its samples may see them.
    """
    seeded = {id(torch.default_generator), id(np.random.mtrand._rand), id(random._inst)}
    return any(
        id(value) not in seeded
        for name, module in [*sys.modules.items()]
        if not name.startswith(_OF_TESTS)
        for value in _globals_of(module)
        if _is_generator(type(value)) and _is_of_package(module)
    )


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
