"""Spans of the thread that runs the training loop, and the calls that it makes."""

import sys
import threading
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

from slipstream.doctor.capture import Call, Span
from slipstream.doctor.record.places import place_of, users_frame

_MOST_SPANS = 400_000
_TIMED_SPANS = 500
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

    def span(self, kind: str, detail: Any = None) -> "OpenSpan":
        """A stretch of time, as a context manager that gives the `Span`. Only where `is_here`."""
        return OpenSpan(self, kind, detail)

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


class OpenSpan:
    """A span under way. A class, as a generator would cost more than the rest."""

    __slots__ = ("_before", "_cpu", "_kind", "_outer", "_trace", "span")

    def __init__(self, trace: Trace, kind: str, detail: Any) -> None:
        self._trace = trace
        self._kind = kind
        self.span = Span(kind, 0, 0, detail)

    def __enter__(self) -> Span:
        trace, span = self._trace, self.span
        self._outer, trace.current = trace.current, self._kind
        clock = trace.device_clock if len(trace.spans) < _MOST_SPANS else None
        self._before = None if clock is None else clock.mark()
        self._cpu = _cpu()
        span.start = _wall()
        return span

    def __exit__(self, *_: object) -> None:
        trace, span = self._trace, self.span
        span.end = _wall()
        span.cpu = _cpu() - self._cpu
        trace.current = self._outer
        if self._before is not None and trace.device_clock is not None:
            span.device = (self._before, trace.device_clock.mark())
        if len(trace.spans) < _MOST_SPANS:
            trace.spans.append(span)


class DeviceClock:
    """Moments on the clock of the device, without waiting for it: read when the run is over."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._events: list[Any] = []
        # The loop's own: copies ahead on a stream of theirs are no part of its time.
        self._stream = torch.cuda.current_stream()
        self.mark()

    def mark(self) -> int:
        """A moment: when the device gets here."""
        if self._events and self._torch.cuda.is_current_stream_capturing():
            return len(self._events) - 1  # nothing runs now
        event = self._torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
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


def span_cost() -> float:
    """Nanoseconds that noting one span takes here, about."""
    trace = Trace()
    trace.is_on = True
    began = _wall()
    for _ in range(_TIMED_SPANS):
        if trace.is_here:
            with trace.span("timed", [0, 0, 0]):
                pass
    return (_wall() - began) / _TIMED_SPANS
