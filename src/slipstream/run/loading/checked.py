"""In a worker: notices samples that are not the same in whichever worker they are made.

They draw random numbers, look at the worker's number or seed, or change the dataset.
"""

import mmap
import sys
from typing import Any

import torch
import torch.utils.data._utils.worker as torch_worker
from torch.utils.data import get_worker_info

from slipstream.doctor.record.places import is_users
from slipstream.run.loading.states import changed, read_states
from slipstream.run.loading.watch import Watch

_OWN = ("id", "num_workers", "seed")
_LONG_LOOKS = frozenset(2**power for power in range(16))


class Flag:
    """Raised by any worker, for all processes to see, and never lowered."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    @property
    def is_up(self) -> bool:
        """Whether one has raised it."""
        return self._memory[0] != 0

    def raise_(self) -> None:
        """From now on."""
        self._memory[0] = 1


class Checked:
    """torch's fetcher in a worker. The flag is up before a batch leaves that is its own."""

    def __init__(self, fetcher: Any, flag: Flag) -> None:
        self._fetcher, self._flag = fetcher, flag
        self._watch = Watch([fetcher.dataset, fetcher.collate_fn])
        self._count = 0
        _tell_who_asks(flag)

    def fetch(self, index: Any) -> Any:
        """What it gives."""
        before = read_states()
        data = self._fetcher.fetch(index)
        self._count += 1
        is_long = self._count in _LONG_LOOKS
        is_same = self._watch.is_same_throughout() if is_long else self._watch.is_same()
        if not is_same or changed(before, read_states()):
            self._flag.raise_()
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)


def _tell_who_asks(flag: Flag) -> None:
    """Where the script asks which worker it is in."""
    info: Any = get_worker_info()

    class Asked(torch_worker.WorkerInfo):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if name in _OWN and is_users(sys._getframe(1).f_code):
                flag.raise_()
            return super().__getattribute__(name)

    if type(info) is not torch_worker.WorkerInfo:
        return  # a worker that lives on
    object.__setattr__(info, "__class__", Asked)
    own = torch.random.initial_seed

    def initial_seed() -> int:
        flag.raise_()
        return own()

    for place in (torch, torch.random):
        vars(place)["initial_seed"] = initial_seed
