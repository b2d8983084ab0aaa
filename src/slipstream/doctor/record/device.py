"""Hooks that matter only where work is done by a device: hidden waits, timers, its allocator."""

import sys
import time
from typing import Any

import torch

from slipstream.doctor.capture import CALL, COPY, SYNC
from slipstream.doctor.record.machine import cuda_is_in_use
from slipstream.doctor.record.places import is_users
from slipstream.doctor.record.trace import Trace
from slipstream.patches import Patches

_HIDDEN = ("masked_select", "unique", "nonzero", "argwhere", "bincount")
_TIMERS = ("time", "perf_counter", "monotonic", "process_time")
_COUNTS = ("num_alloc_retries", "num_device_alloc")


class DeviceHooks:
    """Installed when the first tensor goes to a device."""

    def __init__(self, trace: Trace, patches: Patches) -> None:
        self._trace = trace
        self._patches = patches
        self._is_installed = False
        self._before: dict[str, int] = {}

    def install(self) -> None:
        """Once."""
        if self._is_installed:
            return
        self._is_installed = True
        replace = self._patches.replace
        for name in _HIDDEN:
            replace(torch, name, self._waits(f"torch.{name}"))
        for name in ("masked_select", "unique"):
            replace(torch.Tensor, name, self._waits(f"Tensor.{name}"))
        replace(torch.Tensor, "__getitem__", self._wrap_index)
        replace(torch.Tensor, "pin_memory", self._trace.counted(CALL, "Tensor.pin_memory"))
        for name in ("tensor", "as_tensor", "from_numpy"):
            replace(torch, name, self._wrap_made)
        for name in _TIMERS:
            replace(time, name, self._wrap_timer)

    def note_allocator(self) -> None:
        """In the first steps: what it does later, it does in every one."""
        if self._is_installed:
            self._before = _counts()

    def allocator(self) -> dict[str, int]:
        """Since then."""
        if not self._before:
            return {}
        return {name: count - self._before[name] for name, count in _counts().items()}

    def _waits(self, what: str) -> Any:
        counted = self._trace.counted(SYNC, what)

        def wrap(function: Any) -> Any:
            timed = counted(function)

            def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                on_device = isinstance(tensor, torch.Tensor) and tensor.is_cuda
                return (timed if on_device else function)(tensor, *args, **kwargs)

            return call

        return wrap

    def _wrap_index(self, original: Any) -> Any:
        timed = self._trace.counted(SYNC, "Tensor[mask]")(original)

        def index(tensor: Any, key: Any) -> Any:
            masks = isinstance(key, torch.Tensor) and key.dtype == torch.bool and key.is_cuda
            return (timed if masks else original)(tensor, key)

        return index

    def _wrap_made(self, original: Any) -> Any:
        timed = self._trace.counted(COPY, f"torch.{original.__name__}")(original)

        def make(*args: Any, **kwargs: Any) -> Any:
            device = str(kwargs.get("device", "cpu"))
            return (timed if device.startswith("cuda") else original)(*args, **kwargs)

        return make

    def _wrap_timer(self, original: Any) -> Any:
        trace = self._trace

        def timer() -> Any:
            if trace.is_here and is_users(sys._getframe(1).f_code):
                call = trace.call_here("timer")
                call.count += 1
                with trace.span(CALL, call.id):
                    pass
            return original()

        return timer


def _counts() -> dict[str, int]:
    if not cuda_is_in_use():
        return {}
    stats = torch.cuda.memory_stats()
    return {name: int(stats.get(name, 0)) for name in _COUNTS}
