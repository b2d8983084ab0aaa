"""What the script asks of a device and does not wait for, because it waits later anyway.

After `host.copy_(found, non_blocking=True)` it may read `host`, and after
`buffer.to("cuda", non_blocking=True)` overwrite `buffer`, as soon as anything has waited for the
device; an event of its own has passed then. Fixes that take such a wait away wait for these still,
and for nothing that was asked for after them.
"""

import sys
import threading
import weakref
from typing import Any

import torch

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches
from slipstream.run.fix import Undo

_COPIES = ("to", "cuda", "copy_")


class Unawaited:
    """The copies and events of the script that nobody has waited for yet."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._followers = 0
        self._lock = threading.Lock()
        self._marks: dict[Any, Any] = {}  # of each stream the last: those before pass sooner
        self._in_graph = False  # such a copy, of the one that is captured now
        self._without: weakref.WeakSet[Any] = weakref.WeakSet()  # graphs without such copies

    def follow(self) -> Undo:
        """Note them down from now on, for all fixes together."""
        if not self._followers:
            self._install()
        self._followers += 1

        def undo() -> None:
            self._followers -= 1
            if not self._followers:
                self._patches.undo()
                self._marks.clear()

        return undo

    def wait(self) -> None:
        """Until all that was noted has happened."""
        for stream, mark in list(self._marks.items()):
            mark.synchronize()
            # Only now: other threads wait for it as well.
            with self._lock:
                if self._marks.get(stream) is mark:
                    del self._marks[stream]

    def _install(self) -> None:
        replace = self._patches.replace
        for name in _COPIES:
            replace(torch.Tensor, name, self._copying)
        replace(torch, "_foreach_copy_", self._copying_many)
        replace(torch.cuda.Event, "record", self._recording)
        replace(torch.cuda.Stream, "record_event", self._recording_on_stream)
        replace(torch.cuda.CUDAGraph, "capture_begin", self._beginning)
        replace(torch.cuda.CUDAGraph, "capture_end", self._ending)
        replace(torch.cuda.CUDAGraph, "replay", self._replaying)

    def _copying(self, original: Any) -> Any:
        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(tensor, *args, **kwargs)
            # Without its name `non_blocking` is behind the device, the type or the other tensor.
            if kwargs.get("non_blocking") or any(value is True for value in args[1:]):
                self._note_copy(tensor, made, *args, *kwargs.values())
            return made

        return copy

    def _copying_many(self, original: Any) -> Any:
        def copy(mine: Any, others: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(mine, others, *args, **kwargs)
            if args or kwargs.get("non_blocking"):
                self._note_copy(*mine, *others)
            return made

        return copy

    def _note_copy(self, *things: Any) -> None:
        """Between devices and the host."""
        places = {thing.device for thing in things if isinstance(thing, torch.Tensor)}
        if any(place.type == "cpu" for place in places):
            for place in places:
                if place.type == "cuda":
                    self.note(torch.cuda.current_stream(place))

    def _recording(self, original: Any) -> Any:
        def record(event: Any, stream: Any = None) -> None:
            original(event, stream)
            if is_users(sys._getframe(1).f_code):
                self.note(stream or torch.cuda.current_stream())

        return record

    def _recording_on_stream(self, original: Any) -> Any:
        def record_event(stream: Any, event: Any = None) -> Any:
            made = original(stream, event)
            if is_users(sys._getframe(1).f_code):
                self.note(stream)
            return made

        return record_event

    def _beginning(self, original: Any) -> Any:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
            self._in_graph = False
            self._without.discard(graph)
            original(graph, *args, **kwargs)

        return capture_begin

    def _ending(self, original: Any) -> Any:
        def capture_end(graph: Any) -> None:
            original(graph)
            if not self._in_graph:
                self._without.add(graph)

        return capture_end

    def _replaying(self, original: Any) -> Any:
        def replay(graph: Any) -> None:
            original(graph)
            if graph not in self._without:
                self.note(torch.cuda.current_stream())

        return replay

    def note(self, stream: Any) -> None:
        """What it was asked for until now."""
        if torch.cuda.is_current_stream_capturing():
            self._in_graph = True
        else:
            mark = marked(stream)
            with self._lock:
                self._marks[stream] = mark


def marked(stream: Any) -> Any:
    """An event of ours, which is not noted."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    torch._C._CudaEventBase.record(event, stream)
    return event


unawaited = Unawaited()
