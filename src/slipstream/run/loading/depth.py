"""How many batches workers make ahead: more of them where the loop waits though workers rest.

torch has as many batches under way as it was told, two for each worker. Where batches take very
different times, workers rest while the loop is busy, and the loop waits when a slow one comes. How
long each worker rested shows in when its batches were asked for and made.
"""

import ctypes
import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

MOST = 8  # batches for each worker
MEMORY_SHARE = 0.125  # of what is available, for all batches under way
_WORTH_S = 0.1  # of waiting since the last change: less is not worth the memory
_WORTH_SHARE = 0.05  # of the time since then
_LEAST_REST = 0.5  # of what the loop has waited: workers that are always busy cannot do more
_FEW, _MOST_PARTS = 64, 1000
_FROZEN = (tuple, range)


class Depth:
    """Of one pass over a loader at a time: `now` batches for each worker, `given` at least.

    `sent`, `made` and `came` tell of the batch with this number, `made` from any thread. Times are
    those of `time.monotonic`, which is the same in all processes.
    """

    def __init__(
        self, given: int, workers: int, say: Callable[[str], None], earlier: "Depth | None" = None
    ) -> None:
        """`earlier` is of another pass over the same loader."""
        self.given, self._workers, self._say = given, workers, say
        self.now: int = given if earlier is None else earlier.now
        self._batch_bytes: int = 0 if earlier is None else earlier._batch_bytes
        self.begin(0)

    def begin(self, free: float) -> None:
        """Another pass over the data, in which so many batches may be asked for sooner."""
        self._free = free
        self.now = max(self.given, min(self.now, self.most()))
        self._sent: dict[int, tuple[float, int]] = {}
        self._made: dict[int, float] = {}
        self._made_last: dict[int, float] = {}
        self._began = 0.0
        self._count_anew()

    def _count_anew(self) -> None:
        self._waited_s = self._longest_s = self._rested_s = 0.0
        self._count = 0
        self._unsettled = self.now * self._workers

    def may_ask(self, number: int) -> bool:
        """For this batch sooner than torch would."""
        return number < self._free

    def most(self) -> int:
        """Batches for each worker that there is memory for, up to `MOST`."""
        ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        budget = MEMORY_SHARE * available_bytes() / ranks
        return min(MOST, int(budget / (self._workers * max(1, self._batch_bytes))))

    def sent(self, number: int, worker: int, at: float) -> None:
        """A worker may begin."""
        self._sent[number] = at, worker

    def made(self, number: Any, at: float, nbytes: int) -> None:
        """It is done. What is no number is no batch."""
        if type(number) is int:
            self._made[number] = at
        self._batch_bytes = max(self._batch_bytes, nbytes)

    def came(self, number: int, waited_s: float, at: float) -> bool:
        """The loop has it, and had to wait so long. Returns whether `now` is more than it was."""
        sent_at, worker = self._sent.pop(number, (at, -1))
        made_at = self._made.pop(number, at)
        before = self._made_last.get(worker)
        self._made_last[worker] = made_at
        self._unsettled -= 1
        if self._unsettled >= 0 or before is None:
            self._began = at
            return False
        self._count += 1
        self._rested_s += max(0.0, sent_at - before)
        self._waited_s += waited_s
        self._longest_s = max(self._longest_s, waited_s)
        is_worth_it = self._waited_s >= max(_WORTH_S, _WORTH_SHARE * (at - self._began))
        can_do_more = self._rested_s >= _LEAST_REST * self._waited_s
        return is_worth_it and can_do_more and self._deepen(at)

    def _deepen(self, at: float) -> bool:
        """By what the loop would have used up in the longest wait."""
        busy_s = max(1e-6, (at - self._began - self._waited_s) / self._count)
        more = max(1, math.ceil(self._longest_s / (busy_s * self._workers)))
        deeper = min(self.now + more, self.most()) if self._free else 0
        if deeper <= self.now:
            return False
        self.now = deeper
        self._count_anew()
        self._say(f"each worker makes {deeper} batches ahead, as some take longer than others")
        return True


def available_bytes(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that this process may still take; none where that cannot be told."""
    try:
        available = int(psutil.virtual_memory().available)
    except Exception:
        return 0
    try:
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no limit
        return available
    return max(0, min(available, most - used))


def free_batches(sampler: Any, dataset: Any) -> float:
    """How many of the first batches can be asked for sooner, and nobody can tell: nothing is drawn
    that the loop may draw as well, and nothing looked at that it may change. `sampler` is the
    loader's batch sampler, or its sampler where there are no batches.
    """
    try:
        return 0 if any(map(_is_shared, _parts(dataset))) else _free_of(sampler)
    except Exception:  # of classes of anyone, asked what nobody has asked them before
        return 0


def _free_of(sampler: Any) -> float:
    size = 1
    if type(sampler) is BatchSampler:
        sampler, size = sampler.sampler, sampler.batch_size
    kind = type(sampler)
    if kind in (SequentialSampler, WeightedRandomSampler, DistributedSampler, *_FROZEN):
        return math.inf  # all is drawn with the first item
    if kind is SubsetRandomSampler:
        return math.inf if type(sampler.indices) in _FROZEN else 0
    if kind is RandomSampler:
        if sampler.generator is None:
            return math.inf  # it has its own
        whole = min(sampler.num_samples, len(sampler.data_source))
        return 0 if sampler.replacement else whole // size
    return 0


def _parts(dataset: Any) -> Iterator[Any]:
    """What a dataset holds, and what short lists, dictionaries and datasets among it hold."""
    queue, seen = deque([dataset]), {id(dataset)}
    while queue and len(seen) <= _MOST_PARTS:
        part = queue.popleft()
        yield part
        inside: Any = ()
        if isinstance(part, Dataset) or part is dataset:
            inside = getattr(part, "__dict__", {}).values()
        elif isinstance(part, (list, tuple, dict)) and len(part) <= _FEW:
            inside = part.values() if isinstance(part, dict) else part
        fresh = [one for one in inside if id(one) not in seen]
        seen.update(map(id, fresh))
        queue += fresh


def _is_shared(value: Any) -> bool:
    """Whether the loop may write to it while workers read it."""
    if isinstance(value, torch.Tensor):
        return bool(value.is_shared())  # type: ignore[no-untyped-call]
    if isinstance(value, np.memmap):
        return value.mode != "r"
    is_of_c = isinstance(value, (ctypes.Array, ctypes.Structure, ctypes._SimpleCData))
    return is_of_c or type(value).__module__.partition(".")[0] in ("multiprocessing", "mmap")
