"""Batches copied to the GPU ahead of the training loop, on a stream of their own.

A thread takes batches from the source and starts their copies; the loop's stream waits for a copy's
event, the loop itself does not. What touches CUDA is in `CudaLane`; the rest is threads, queues and
their ends, and runs with any `Lane`.
"""

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from slipstream.errors import InternalError, UsageError
from slipstream.loader.cuda_lane import CudaLane, Sent
from slipstream.loader.exits import close_at_exit
from slipstream.loader.structure import map_tensors, tensor_bytes

T = TypeVar("T")

DEPTH = 2
BYTE_BUDGET = 1 << 30

_CHECK_S = 1.0  # how often a waiting consumer looks whether the thread lives
_GRACE_S = 5.0  # how long an end waits for the thread, and the thread for its last copy
_FIRST_PAUSE_S = 50e-6
_LAST_PAUSE_S = 2e-3

# Host batches whose copies did not finish within the grace. They stay here: memory that is lost is
# better than memory that is overwritten while the GPU reads it.
_abandoned: list[object] = []


class Lane(Protocol):
    """The way to a device: what the prefetcher needs of it. Tickets are events, or anything."""

    def active(self) -> AbstractContextManager[object]:
        """Entered by the thread for as long as it lives."""

    def send(self, batch: Any) -> tuple[Sent, list[object]]:
        """Start to copy, in the thread. Returns also the host objects that must live until
        `finished(sent.ticket)`; none when the host batch is free already.
        """

    def finished(self, ticket: Any) -> bool:
        """Whether what was before the ticket has passed. Any thread; does not block."""

    def receive(self, sent: Sent) -> Any:
        """Make the caller's stream wait for the copy and return the batch. In the consumer."""

    def mark(self) -> Any:
        """A ticket for what the caller's stream has to do up to now. In the consumer."""


@dataclass
class PrefetchStats:
    """Counters of a prefetcher. Seconds are wall time."""

    batches: int = 0  # handed out
    copied_bytes: int = 0
    wait_s: float = 0.0  # the consumer waited for a batch
    pin_s: float = 0.0  # the thread copied from pageable to page-locked memory
    held_s: float = 0.0  # the thread held copies back: the consumer's stream was too far behind
    depth_sum: int = 0  # batches that were ready when the consumer came, added up

    @property
    def mean_depth(self) -> float:
        """Batches that were ready when the consumer came, on average."""
        return self.depth_sum / max(1, self.batches)


class DevicePrefetcher(Generic[T]):
    """Iterator over the source's batches, copied ahead through a lane.

    Takes over the source: `iter(batches)` is called here, all else happens in a daemon thread,
    and the iterator's `close()` is called in the end, if it has one. The source's host memory may
    be written again as soon as its tensors are dropped, or when it is asked for the next batch:
    by then the copy has finished.

    At most `depth` batches are taken and not yet handed out. Those hold at most `byte_budget`
    bytes, and so do the ones handed out whose work the consumer's stream has not done; one (two)
    may be larger. An error of the source comes after all batches before it. `close()`, garbage
    collection and the interpreter's exit end the thread, after waiting some seconds at most for a
    source that does not return; `interrupt` is called then, from any thread, to make it return.

    One consumer at a time. The source's random numbers are drawn in the thread: those of the global
    generators come in another order than without prefetching.
    """

    def __init__(
        self,
        batches: Iterable[T],
        lane: Lane,
        *,
        depth: int | None = None,
        byte_budget: int = BYTE_BUDGET,
        interrupt: Callable[[], object] | None = None,
    ) -> None:
        if depth is not None and depth < 1:
            raise UsageError(f"depth is {depth}; expected 1 or more, or None for {DEPTH}.")
        if byte_budget < 0:
            raise UsageError(f"byte_budget is {byte_budget}; expected a number of bytes.")
        self.stats = PrefetchStats()
        self._lane = lane
        self._queue = queue = _Queue(depth or DEPTH, byte_budget, self.stats)
        self._unmarked_bytes = 0
        self._thread = threading.Thread(
            target=_run, args=(iter(batches), lane, queue), name="slipstream-prefetch", daemon=True
        )
        self._thread.start()
        self._end = weakref.finalize(self, _end, queue, self._thread, interrupt)
        self._end.atexit = False
        close_at_exit(self)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if os.getpid() != self._queue.pid:
            raise UsageError(
                "This process was forked after prefetching began: its copy of the prefetcher has "
                "no thread. Iterate in the process that made it, or make one after the fork."
            )
        if self._unmarked_bytes:
            self._queue.note_running(self._lane.mark(), self._unmarked_bytes)
            self._unmarked_bytes = 0
        began = time.perf_counter()
        ready, sent = self._queue.take(self._thread)
        self.stats.wait_s += time.perf_counter() - began
        if sent is None:
            error = self._queue.take_error()
            try:
                self.close()
                raise StopIteration if error is None else error
            finally:
                del error  # its traceback holds this frame
        batch: T = self._lane.receive(sent)
        self._unmarked_bytes = sent.nbytes
        self.stats.batches += 1
        self.stats.depth_sum += ready
        return batch

    def close(self) -> None:
        """End the thread and the source. Batches that are out stay good. Idempotent.

        Raises what the source's own `close()` raised.
        """
        self._end()


def prefetch_to_device(
    batches: Iterable[T],
    device: torch.device | str | int | None,
    *,
    depth: int | None = None,
    byte_budget: int = BYTE_BUDGET,
) -> Iterator[T]:
    """Iterate over batches that are copied to the GPU ahead of the loop that uses them.

    Takes any iterable and any batch: dicts, tuples, dataclasses, objects with their own `.to`.
    Tensors keep strides and `requires_grad`, without their graph. Work on the current stream may
    use a batch at once. `depth` and `byte_budget`: see `DevicePrefetcher`. Prefetching starts
    with the call.

    For the device "cpu" or None the batches come as they are, for other devices than CUDA's
    through a plain `.to(device)`, without a thread in either case.

    >>> loader = [{"x": torch.ones(4), "key": "a"}, {"x": torch.zeros(4), "key": "b"}]
    >>> device = "cuda" if torch.cuda.is_available() else "cpu"
    >>> for batch in prefetch_to_device(loader, device):
    ...     print(batch["key"], batch["x"].sum().item())
    a 4.0
    b 0.0
    """
    target = None if device is None else torch.device(device)
    if target is None or target.type == "cpu":
        return _inline(iter(batches), None)
    if target.type != "cuda":
        return _inline(iter(batches), target)
    return DevicePrefetcher(batches, CudaLane(target), depth=depth, byte_budget=byte_budget)


class _Queue:
    """What thread and consumer share. Knows neither the prefetcher nor the source.

    The lock is reentrant: the collector may run a prefetcher's end in the middle of anything.
    """

    def __init__(self, depth: int, byte_budget: int, stats: PrefetchStats) -> None:
        self.pid = os.getpid()
        self.stats = stats
        self.close_error: BaseException | None = None
        self._error: BaseException | None = None
        self._depth = depth
        self._byte_budget = byte_budget
        self._changed = threading.Condition()
        self._ready: deque[Sent] = deque()
        self._ready_bytes = 0
        self._running: deque[tuple[Any, int]] = deque()
        self._running_bytes = 0
        self._closed = False
        self._finished = False

    @property
    def is_finished(self) -> bool:
        """Whether the thread has nothing more to do."""
        return self._finished

    # Of the consumer

    def take(self, thread: threading.Thread) -> tuple[int, Sent | None]:
        """How many were ready, and the next one; None at the end."""
        with self._changed:
            ready = len(self._ready)
            while not self._ready:
                if self._closed or self._finished:
                    return ready, None
                if not thread.is_alive():
                    raise InternalError(
                        "The prefetch thread is gone without a word. Please report."
                    )
                self._changed.wait(_CHECK_S)
            sent = self._ready.popleft()
            self._ready_bytes -= sent.nbytes
            self._changed.notify_all()
            return ready, sent

    def take_error(self) -> BaseException | None:
        """What ended the thread; once, and not after an early close: nobody got that far."""
        error, self._error = self._error, None
        return None if self._closed else error

    def note_running(self, ticket: Any, nbytes: int) -> None:
        """The consumer's stream has done with a batch when the ticket has passed."""
        with self._changed:
            self._running.append((ticket, nbytes))
            self._running_bytes += nbytes

    def close(self) -> None:
        """Tell the thread to end, and let go of the batches nobody will take."""
        with self._changed:
            self._closed = True
            dropped, self._ready = self._ready, deque()
            self._changed.notify_all()
        del dropped

    # Of the thread

    def wait_for_place(self) -> bool:
        """Wait until there may be one batch more; False when there is to be none."""
        with self._changed:
            while len(self._ready) >= self._depth and not self._closed:
                self._changed.wait()
            return not self._closed

    def wait_for_bytes(self, nbytes: int, lane: Lane) -> bool:
        """Wait until a batch of that size may be sent; False when it is not to be sent."""
        with self._changed:
            while self._ready and self._ready_bytes + nbytes > self._byte_budget:
                if self._closed:
                    return False
                self._changed.wait()
        if not self._is_ahead(nbytes, lane):
            return not self._closed
        # The allocator gives a batch's memory back when the consumer's stream has passed, and the
        # consumer may enqueue hundreds of steps: without a limit all memory would go there.
        began = time.perf_counter()
        self._poll(lambda: self._closed or not self._is_ahead(nbytes, lane))
        self.stats.held_s += time.perf_counter() - began
        return not self._closed

    def put(self, sent: Sent) -> None:
        """Hand over to the consumer."""
        with self._changed:
            if self._closed:
                return
            self._ready.append(sent)
            self._ready_bytes += sent.nbytes
            self._changed.notify_all()

    def wait_for_copy(self, ticket: Any, lane: Lane) -> bool:
        """Wait until the ticket has passed; False when it has not within the grace of an end."""
        deadline = float("inf")

        def is_over() -> bool:
            nonlocal deadline
            if self._closed:
                deadline = min(deadline, time.monotonic() + _GRACE_S)
            return lane.finished(ticket) or time.monotonic() > deadline

        self._poll(is_over)
        return lane.finished(ticket)

    def finish(self, error: BaseException | None, close_error: BaseException | None) -> None:
        """Last word of the thread."""
        with self._changed:
            self._error, self.close_error = error, close_error
            self._finished = True
            self._changed.notify_all()

    def _is_ahead(self, nbytes: int, lane: Lane) -> bool:
        while self._running and lane.finished(self._running[0][0]):
            with self._changed:
                self._running_bytes -= self._running.popleft()[1]
        return len(self._running) > 1 and self._running_bytes + nbytes > self._byte_budget

    def _poll(self, is_over: Callable[[], bool]) -> None:
        # CUDA has no wait with a time limit. A copy takes about a millisecond, so look often first.
        pause_s = _FIRST_PAUSE_S
        while not is_over():
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LAST_PAUSE_S)


def _run(source: Iterator[Any], lane: Lane, queue: _Queue) -> None:
    """Body of the thread. Does not know the prefetcher, so that one can be collected."""
    error = close_error = None
    try:
        with lane.active():
            _pump(source, lane, queue)
    except BaseException as caught:  # raised again in the consumer
        error = caught
    try:
        _close(source)
    except BaseException as caught:
        close_error = None if error else caught
    del source
    queue.finish(error, close_error)
    del error, close_error  # their tracebacks hold this frame


def _pump(source: Iterator[Any], lane: Lane, queue: _Queue) -> None:
    while queue.wait_for_place():
        try:
            batch = next(source)
        except StopIteration:
            return
        if not queue.wait_for_bytes(tensor_bytes(batch), lane):
            return
        sent, hosts = lane.send(batch)
        del batch
        queue.stats.copied_bytes += sent.copied_bytes
        queue.stats.pin_s += sent.pin_s
        ticket = sent.ticket
        queue.put(sent)
        del sent
        # Wait here, not after the next batch: the source may need this memory to make it.
        if hosts and not queue.wait_for_copy(ticket, lane):
            _abandoned.append(hosts)
        del hosts


def _end(queue: _Queue, thread: threading.Thread, interrupt: Callable[[], object] | None) -> None:
    if os.getpid() != queue.pid:
        return  # a forked child: the thread is the parent's, and the lock may be held for ever
    queue.close()
    if interrupt is not None and not queue.is_finished:
        interrupt()
    if thread is not threading.current_thread():
        thread.join(_GRACE_S)
    error, queue.close_error = queue.close_error, None
    if error is not None:
        raise error


def _inline(source: Iterator[T], device: torch.device | None) -> Iterator[T]:
    """Batches in the consumer's own thread, moved where a device is given."""
    try:
        for batch in source:
            yield batch if device is None else _moved(batch, device)
    finally:
        _close(source)


def _moved(batch: Any, device: torch.device) -> Any:
    return map_tensors(batch, lambda t: t.to(device), lambda thing: thing.to(device))


def _close(source: object) -> None:
    close = getattr(source, "close", None)
    if callable(close):
        close()
