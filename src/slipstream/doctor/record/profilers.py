"""Profilers and tracers that are on while the loop runs: which, how often, and what they take."""

import cProfile
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.profiler

from slipstream.doctor.capture import CALL
from slipstream.doctor.record.stopwatch import Stopwatch, Work
from slipstream.doctor.record.trace import Trace
from slipstream.patches import Patches

TORCH, CPROFILE, TRACE = "torch.profiler", "cProfile", "sys.settrace"
_OPTIONS = (
    "activities", "record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules",
)  # fmt: skip
_BLOCK = 5  # passes
_LEAST_BLOCKS = 3
_SECONDS = 1.5


class Profilers:
    """Looks at every step whether one is on."""

    def __init__(self, trace: Trace, patches: Patches) -> None:
        self._trace = trace
        self._patches = patches
        self._options: dict[str, Any] = {}
        self.steps = 0
        self.steps_on: dict[str, int] = {}

    def install(self) -> None:
        """Notes where they are started."""
        replace, counted = self._patches.replace, self._trace.counted
        replace(torch.profiler.profile, "start", self._wrap_start)
        replace(torch.autograd.profiler.profile, "__enter__", counted(CALL, TORCH))
        replace(cProfile.Profile, "enable", counted(CALL, CPROFILE))

    def before_step(self) -> None:
        """Of the optimizer."""
        self.steps += 1
        for name in _on_now():
            self.steps_on[name] = self.steps_on.get(name, 0) + 1

    def replay(self, work: Work, watch: Stopwatch) -> list[dict[str, Any]]:
        """What a pass takes with those that were seen, and without them."""
        found = []
        for name, steps in self.steps_on.items():
            if name == TORCH:
                times = self._compare_torch(work, watch)
            else:
                times = watch.compare(_ways[name](work), work, _SECONDS)
            if times is not None:
                found.append(
                    {
                        "name": "profiler", "profiler": name, "steps": [steps, self.steps],
                        "now_ms": times[0], "then_ms": times[1],
                    }
                )  # fmt: skip
        return found

    def _wrap_start(self, original: Any) -> Any:
        timed = self._trace.counted(CALL, TORCH)(original)

        def start(profiler: Any) -> Any:
            self._options = {
                name: getattr(profiler, name) for name in _OPTIONS if hasattr(profiler, name)
            }
            return timed(profiler)

        return start

    def _compare_torch(self, work: Work, watch: Stopwatch) -> list[list[float]] | None:
        """In blocks: beginning and ending it takes far longer than a pass."""
        ends = time.perf_counter() + min(_SECONDS, watch.left_s)
        times: list[list[float]] = [[], []]
        with suppress(Exception), _quiet():
            while len(times[0]) < _LEAST_BLOCKS * _BLOCK or time.perf_counter() < ends:
                with torch.profiler.profile(**self._options):
                    times[0] += _block_ms(work)
                times[1] += _block_ms(work)
                if time.perf_counter() > ends + _SECONDS:
                    break
        return times if len(times[1]) >= _BLOCK and len(times[0]) == len(times[1]) else None


def _on_now() -> list[str]:
    found = [TORCH] if torch._C._autograd._profiler_enabled() else []
    # Torch's, with stacks, is one of Python's, too.
    if not found and (sys.getprofile() is not None or _monitors(2)):
        found.append(CPROFILE)
    if sys.gettrace() is not None or _monitors(1):
        found.append(TRACE)
    return found


def _monitors(tool: int) -> bool:
    """Whether a tool of this kind is registered, from Python 3.12 on: 1 coverage, 2 profiler."""
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and monitoring.get_tool(tool) is not None


def _block_ms(work: Work) -> list[float]:
    on_device = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    times = []
    work()
    for _ in range(_BLOCK):
        if on_device:
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if on_device:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _under_cprofile(work: Work) -> Work:
    def run() -> object:
        profile = cProfile.Profile()
        profile.enable()
        try:
            return work()
        finally:
            profile.disable()

    return run


def _under_trace(work: Work) -> Work:
    """With a function that does nothing: what the script's own does comes on top."""

    def trace(frame: Any, event: str, argument: Any) -> Any:
        return trace

    def run() -> object:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return work()
        finally:
            sys.settrace(before)

    return run


_ways: dict[str, Callable[[Work], Work]] = {CPROFILE: _under_cprofile, TRACE: _under_trace}


@contextmanager
def _quiet() -> Iterator[None]:
    """The library below torch's profiler writes to the error output by itself."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
