"""The process that `benchmarks.running` measures: a script with some fixes, or none, and a clock.

    python -m benchmarks.running_child SPEC

It does what `slipstream run` does when the trials are over, and no more.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data.dataloader import _BaseDataLoaderIter

from slipstream.launch import Target, WindowEnded, run_target
from slipstream.loader.iterator import LoaderIterator
from slipstream.patches import Patches
from slipstream.run.apply import apply_all
from slipstream.run.child import seed_all
from slipstream.run.situation import load_situation


class Clock:
    """When backward passes ended, and how long the loop had waited for batches until then. If it
    `drains`, the loop gets no more batches behind the warm-up: they are taken as fast as they come.
    """

    def __init__(self, seconds: float, warm_up: int, *, drains: bool = False) -> None:
        self.ends: list[float] = []
        self.waited: list[float] = []
        self.alone: list[float] = []  # seconds of batches that were taken so
        self._drains = drains
        self._seconds, self._warm_up = seconds, warm_up
        self._wait = 0.0
        self._is_inside = False
        self._patches = Patches()

    def start(self) -> None:
        """Before the script."""
        self._patches.replace(torch.autograd, "backward", self._wrap_backward)
        for kind in (_BaseDataLoaderIter, LoaderIterator):
            self._patches.replace(kind, "__next__", self._wrap_next)

    def _wrap_backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> None:
            if len(self.ends) > self._warm_up:
                took = time.perf_counter() - self.ends[self._warm_up]
                if took > self._seconds:
                    raise WindowEnded
            original(*args, **kwargs)
            self.ends.append(time.perf_counter())
            self.waited.append(self._wait)

        return backward

    def _wrap_next(self, original: Any) -> Any:
        def next_batch(iterator: Any) -> Any:
            if self._is_inside:
                return original(iterator)
            self._is_inside = True
            began = time.perf_counter()
            try:
                if self._drains and len(self.ends) > self._warm_up and torch.is_grad_enabled():
                    self._drain(original, iterator)
                return original(iterator)
            finally:
                self._wait += time.perf_counter() - began
                self._is_inside = False

        return next_batch

    def _drain(self, original: Any, iterator: Any) -> None:
        """To the end of the epoch, which `StopIteration` is."""
        last = None
        while sum(self.alone) < self._seconds:
            batch = original(iterator)
            first = next(leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor))
            first.flatten()[0].item()  # all of it is there
            now = time.perf_counter()
            if last is not None:
                self.alone.append(now - last)
            last = now
        raise WindowEnded


def main() -> None:
    """Run what the file says; the clock's times replace it."""
    file = Path(sys.argv[1])
    spec = json.loads(file.read_text())
    seed_all(0)
    if spec["fixes"]:
        apply_all(spec["fixes"], load_situation(Path(spec["known"])))
    clock = Clock(spec["seconds"], spec["warm_up"], drains=spec["drains"])
    clock.start()
    ran = run_target(Target(spec["script"], tuple(spec["arguments"])))
    file.write_text(
        json.dumps(
            {
                "ended": ran.ended,
                "ends": clock.ends,
                "waited": clock.waited,
                "alone": clock.alone,
            }
        ),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
