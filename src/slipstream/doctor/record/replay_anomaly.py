"""Passes on a stack of a given depth: anomaly detection notes all of it, for every operation."""

import _thread
import sys
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from slipstream.doctor.record.machine import cuda_is_in_use
from slipstream.doctor.record.stopwatch import Work

_LEAST_ROOM = 200  # frames that a model may take itself


class StackOfDepth:
    """A thread whose frames below a model's are as many as the script's own. `close` ends it.

    Not `threading.Thread`: that has frames of its own.
    """

    def __init__(self, model: Any, given: Any, depth: int, dtype: torch.dtype | None) -> None:
        self._model, self._given, self._dtype = model, given, dtype
        self._device = torch.cuda.current_device() if cuda_is_in_use() else None
        self._asked, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._asked.acquire()
        self._done.acquire()
        self._is_open = True
        self._error: Exception | None = None
        most = max(1, sys.getrecursionlimit() - _LEAST_ROOM)
        _thread.start_new_thread(_at_depth, (min(depth, most), self._serve))

    def with_anomaly(self, on: bool) -> Work:
        """A training pass there."""

        def run() -> None:
            with torch.autograd.set_detect_anomaly(on):
                self._asked.release()
                self._done.acquire()
            if self._error is not None:
                raise self._error

        return run

    def close(self) -> None:
        """End the thread."""
        self._is_open = False
        self._asked.release()

    def _serve(self) -> None:
        # All in one function: every frame below the model's would count.
        model, (args, kwargs), dtype = self._model, self._given, self._dtype
        if self._device is not None:
            torch.cuda.set_device(self._device)
        while True:
            self._asked.acquire()
            if not self._is_open:
                return
            try:
                model.zero_grad()
                with nullcontext() if dtype is None else torch.autocast("cuda", dtype):
                    result = model(*args, **kwargs)
                leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
                sums = [leaf.sum().to(torch.float64).real for leaf in leaves if leaf.requires_grad]
                torch.stack(sums).sum().backward()  # type: ignore[no-untyped-call]
            except Exception as error:
                self._error = error
            finally:
                self._done.release()


def _at_depth(depth: int, work: Work) -> None:
    if depth <= 2:
        work()
    else:
        _at_depth(depth - 1, work)
