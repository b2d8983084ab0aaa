"""Times of nested stages in one thread: what each took itself, without those inside it."""

import threading
import time
from collections.abc import Callable
from typing import Any

from slipstream.doctor.capture import StageTimes

_wall = time.perf_counter_ns
_cpu = time.thread_time_ns
_ROUNDS, _CALIBRATING = 6, 40

_BITS = [str(bits) for bits in range(65)]


class StageLog:
    """Collects the stages of one thread; calls from other threads are not timed."""

    def __init__(self) -> None:
        self.times: dict[str, StageTimes] = {}
        self.current = ""  # the stage that runs, for the sampler
        self.is_on = True
        self.calls = 0  # that were timed
        self.took = 0  # the latest call, with all that was inside it
        self.transforms: dict[str, dict[str, Any]] = {}  # facts about them, by stage
        self.pictures: dict[str, list[int]] = {}  # decoded ones by format: [count, pixels]
        self._stack: list[list[int]] = []
        self._thread = threading.get_ident()
        self.call_ns = self._calibrate()

    def _calibrate(self) -> int:
        """Nanoseconds that watching a call takes, when nothing comes between."""
        found = []
        for _ in range(_ROUNDS):
            start = _wall()
            for _ in range(_CALIBRATING):
                self.call("", int)
            found.append((_wall() - start) // _CALIBRATING)
        self.times.clear()
        return min(found)

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(...)` as a stage."""
        if not self.is_on or threading.get_ident() != self._thread:
            return function(*args, **kwargs)
        inside, outer = [0, 0], self.current
        stack = self._stack
        stack.append(inside)
        self.current = name
        start, cpu = _wall(), _cpu()
        try:
            return function(*args, **kwargs)
        finally:
            used = _cpu() - cpu
            self.took = took = _wall() - start
            self.current = outer
            stack.pop()
            if stack:
                stack[-1][0] += took
                stack[-1][1] += used
            self._note(name, took - inside[0], used - inside[1])

    def _note(self, name: str, wall: int, cpu: int) -> None:
        times = self.times.get(name)
        if times is None:
            times = self.times[name] = StageTimes()
        self.calls += 1
        times.count += 1
        times.wall += wall
        times.cpu += cpu
        if wall > times.longest:  # noqa: PLR1730  # runs for every call of a stage
            times.longest = wall
        bits = _BITS[(wall // 1000).bit_length()]
        times.shape[bits] = times.shape.get(bits, 0) + 1

    def wrap(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """For `Patches.replace`: the function as a stage."""

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                return self.call(name, function, *args, **kwargs)

            return call

        return wrap
