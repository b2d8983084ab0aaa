"""Spans of the thread that runs the training loop, and the calls that it makes."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from slipstream.doctor.capture import Call, Span
from slipstream.doctor.record.places import place_of, users_frame

_MOST_SPANS = 400_000
_wall = time.perf_counter_ns
_cpu = time.thread_time_ns


class Trace:
    """Collects spans. `is_on` is looked at before anything else: hooks cost nothing when it is
    off.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.current = ""  # the innermost kind, for the sampler
        self.loop_code: CodeType | None = None  # of the function that calls the optimizer
        self.spans: list[Span] = []
        self.device_clock: DeviceClock | None = None
        self._thread = threading.get_ident()
        self._calls: dict[tuple[str, Any, int], Call] = {}

    @property
    def is_here(self) -> bool:
        """Whether spans of the thread that calls are to be noted."""
        return self.is_on and threading.get_ident() == self._thread

    @contextmanager
    def span(self, kind: str, detail: Any = None) -> Iterator[Span]:
        """A stretch of time. Only where `is_here`."""
        outer, self.current = self.current, kind
        clock = self.device_clock
        before = clock.mark() if clock is not None else None
        span = Span(kind, _wall(), 0, detail)
        cpu = _cpu()
        try:
            yield span
        finally:
            span.cpu = _cpu() - cpu
            span.end = _wall()
            self.current = outer
            if clock is not None:
                span.device = (before, clock.mark())  # type: ignore[assignment]
            if len(self.spans) < _MOST_SPANS:
                self.spans.append(span)

    def call_here(self, what: str, depth: int = 1) -> Call:
        """The count of such calls at the line of the user's code that is running."""
        frame = users_frame(sys._getframe(depth + 1))
        key = (what, None, 0) if frame is None else (what, frame.f_code, frame.f_lineno)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = Call(len(self._calls), what, place_of(frame))
        return call

    @property
    def calls(self) -> list[Call]:
        """All that were counted."""
        return list(self._calls.values())

    def counted(self, kind: str, what: str) -> Callable[[Any], Any]:
        """For `Patches.replace`: calls as spans of this kind, counted by line."""

        from torch.compiler import is_compiling

        def wrap(function: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if is_compiling() or not self.is_here:
                    return function(*args, **kwargs)
                counted = self.call_here(what)
                with self.span(kind, counted.id) as span:
                    result = function(*args, **kwargs)
                counted.count += 1
                counted.wall += span.end - span.start
                return result

            return call

        return wrap


class DeviceClock:
    """Moments on the clock of the device, without waiting for it: read when the run is over."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._events: list[Any] = []
        self.mark()

    def mark(self) -> int:
        """A moment: when the device gets here."""
        event = self._torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._events.append(event)
        return len(self._events) - 1

    def read(self, spans: list[Span]) -> None:
        """Replace the marks of spans by times."""
        self._torch.cuda.synchronize()
        first = self._events[0]
        times = [int(first.elapsed_time(event) * 1e6) for event in self._events]
        for span in spans:
            if span.device is not None:
                span.device = (times[span.device[0]], times[span.device[1]])
