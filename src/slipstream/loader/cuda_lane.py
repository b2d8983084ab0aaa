"""The way of a batch to a CUDA device: page-locked memory, a copy stream, events."""

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.loader.streams import give_back_stream, take_stream
from slipstream.loader.structure import (
    has_method,
    is_dense,
    is_plain,
    map_tensors,
    reachable_tensors,
)


@dataclass
class Sent:
    """A batch whose copy was started, and what its receiver must do."""

    batch: Any
    ticket: Any  # passes when the copy is done; None when nothing is to be waited for
    nbytes: int = 0  # on the device
    copied_bytes: int = 0
    pin_s: float = 0.0
    recorded: list[Any] = field(default_factory=list)  # whose memory is the copy stream's
    has_late: bool = False  # some leaves are on the host still: `receive` moves them


class CudaLane:
    """Copies batches to one device on a stream of its own. One thread sends, one receives.

    Tensors in page-locked memory are copied from where they are, others through page-locked
    memory of torch's allocator, which keeps it until the copy has passed. Memory on the device
    belongs to the copy stream, and the allocator is told of the receiver's stream. Leaves where it
    could not be told (sparse and nested tensors, objects that hide theirs) are copied by the
    receiver, in its own stream.

    The thread queries events and allocates: while a step is captured into a CUDA graph with batches
    still being prefetched, capture with `capture_error_mode="thread_local"`.
    """

    def __init__(self, device: torch.device | str | int) -> None:
        target = torch.device(device)
        if target.type != "cuda":
            raise UsageError(f"Cannot prefetch to {target}: it is not a CUDA device.")
        if not torch.cuda.is_available():
            raise UsageError(
                f"Cannot prefetch to {target}: torch {torch.__version__} sees no CUDA device here. "
                'Use device="cpu" or no device to leave batches where they are.'
            )
        with torch.cuda.device(target):
            index = torch.cuda.current_device()  # of plain "cuda": the caller's
        self.device = torch.device("cuda", index)
        self.stream = take_stream(self.device)
        # The source runs on the copy stream; what it works with may still be under way.
        self.stream.wait_stream(torch.cuda.current_stream(self.device))

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make device and copy stream current in this thread; the stream is given back after."""
        try:
            torch.cuda.set_device(self.device)
            with torch.cuda.stream(self.stream):
                yield
        finally:
            give_back_stream(self.stream)

    def send(self, batch: Any) -> tuple[Sent, list[object]]:
        """See `Lane`. The copy stream must be current."""
        load = _Load(self.device)
        with torch.no_grad():
            moved = map_tensors(batch, load.add_tensor, load.add_object)
        if load.hosts:
            load.hosts.append(batch)  # some owners are the containers
        sent = load.sent
        sent.batch = moved
        if sent.recorded or load.hosts:
            sent.ticket = torch.cuda.Event()  # type: ignore[no-untyped-call]
            sent.ticket.record(self.stream)
        return sent, load.hosts

    def finished(self, ticket: Any) -> bool:
        """See `Lane`."""
        return bool(ticket.query())

    def receive(self, sent: Sent) -> Any:
        """See `Lane`."""
        if sent.ticket is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(sent.ticket)
            for tensor in sent.recorded:
                tensor.record_stream(stream)
        if not sent.has_late:
            return sent.batch
        to = self.device
        return map_tensors(sent.batch, lambda t: t.to(to), lambda thing: thing.to(to))

    def mark(self) -> torch.cuda.Event:
        """See `Lane`."""
        ticket = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ticket.record(torch.cuda.current_stream(self.device))
        return ticket


class _Load:
    """One batch being sent: visits the leaves and collects what there is to remember."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sent = Sent(batch=None, ticket=None)
        self.hosts: list[object] = []
        self._done: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def add_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Start to copy; the same tensor twice is one tensor on the device, too."""
        if id(tensor) not in self._done:
            self._done[id(tensor)] = tensor, self._copy(tensor)
        return self._done[id(tensor)][1]

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if not is_plain(tensor):
            self.sent.has_late |= tensor.device != self.device
            return tensor
        if tensor.device == self.device:
            self._record(tensor)  # made by the source, on the copy stream
            return tensor
        origin = self._pin(tensor) if tensor.device.type == "cpu" else tensor
        copy = origin.detach().to(self.device, non_blocking=True)
        if tensor.requires_grad:
            copy.requires_grad_()
        if origin is tensor:
            self.hosts.append(tensor)
        self._record(copy)
        self.sent.copied_bytes += copy.nbytes
        return copy

    def _record(self, tensor: torch.Tensor) -> None:
        self.sent.recorded.append(tensor)
        self.sent.nbytes += tensor.nbytes

    def _pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in page-locked memory, dense; itself where it is so already."""
        dense = is_dense(tensor)
        if tensor.numel() == 0 or (dense and tensor.is_pinned()):
            return tensor
        began = time.perf_counter()
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            pinned = tensor.pin_memory()
            return pinned if type(pinned) is type(tensor) else tensor
        pinned = torch.empty_like(tensor, pin_memory=True, requires_grad=False)
        if dense and not tensor.is_conj() and not tensor.is_neg():
            # One thread, no GIL. copy_ would wake a team of threads on cores the workers need.
            ctypes.memmove(pinned.data_ptr(), tensor.data_ptr(), tensor.nbytes)
        else:
            pinned.copy_(tensor.detach())
        self.sent.pin_s += time.perf_counter() - began
        return pinned

    def add_object(self, thing: Any) -> Any:
        """Let an object with its own `.to` move itself, and find the memory it got."""
        tensors = reachable_tensors(thing)
        hidden = not tensors or not all(map(is_plain, tensors))
        if hidden and not has_method(thing, "record_stream"):
            self.sent.has_late = True
            return thing
        self.hosts += tensors or [thing]  # `.to` may change the object in place
        began = time.perf_counter()
        pinned = thing.pin_memory() if has_method(thing, "pin_memory") else self._pin_inside(thing)
        self.sent.pin_s += time.perf_counter() - began
        try:
            moved = pinned.to(self.device, non_blocking=True)
        except TypeError:
            moved = pinned.to(self.device)
        on_device = [t for t in reachable_tensors(moved) or [] if t.device == self.device]
        for tensor in on_device:
            self.sent.nbytes += tensor.nbytes
            self.sent.copied_bytes += tensor.nbytes
        self.sent.recorded += [moved] if has_method(moved, "record_stream") else on_device
        return moved

    def _pin_inside(self, thing: Any) -> Any:
        return map_tensors(thing, lambda t: self._pin(t) if is_plain(t) else t)
