"""Batches made ahead by threads of this process, which call native code without the GIL."""

import atexit
import functools
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator

from slipstream.errors import InternalError, UsageError
from slipstream.loader.made import Made
from slipstream.loader.plan import Task

_CHECK_S = 5.0
_REMINDER_S = 60.0
_GRACE_S = 30.0


class _Shared:
    """What the threads and the iterator share. Holds no reference to the iterator, so that one
    that is dropped can be collected and ends its threads.
    """

    def __init__(self, make: Callable[[Task], Made], tasks: Iterator[Task], depth: int) -> None:
        self.make = make
        self.tasks = tasks
        self.depth = depth
        self.changed = threading.Condition()
        self.finished: dict[int, Made | BaseException] = {}
        self.given: dict[int, Task] = {}
        self.taken = 0
        self.delivered = 0
        self.stopped = False
        self.exhausted = False

    def work(self) -> None:
        """Body of a thread."""
        while (claimed := self._claim()) is not None:
            number, task = claimed
            result: Made | BaseException
            try:
                result = self.make(task)
            except BaseException as error:  # handed to the loop that asks for this batch
                result = error
            with self.changed:
                self.finished[number] = result
                self.changed.notify_all()
            del result, task, claimed

    def _claim(self) -> tuple[int, Task] | None:
        with self.changed:
            while not self.stopped and self.taken - self.delivered >= self.depth:
                self.changed.wait()
            if self.stopped or self.exhausted:
                return None
            number = self.taken
            try:
                task = next(self.tasks, None)
            except BaseException as error:
                self.exhausted = True
                self.given[number] = Task(0, [], 0)
                self.finished[number] = error
                self.taken += 1
                self.changed.notify_all()
                return None
            if task is None:
                self.exhausted = True
                self.changed.notify_all()
                return None
            self.taken += 1
            self.given[number] = task
            return number, task

    def stop(self) -> None:
        """Have the threads end after what they are at."""
        with self.changed:
            self.stopped = True
            self.finished.clear()
            self.changed.notify_all()


class ThreadedBatches:
    """Iterator over `(task, Made)` in the order of the tasks, made by `threads` threads, at most
    `depth` ahead.
    """

    def __init__(
        self, make: Callable[[Task], Made], tasks: Iterator[Task], *, threads: int, depth: int
    ) -> None:
        self._shared = _Shared(make, tasks, depth)
        self._owner = os.getpid()
        self._threads = [
            threading.Thread(target=self._shared.work, name=f"slipstream-batches-{k}", daemon=True)
            for k in range(threads)
        ]
        self._end = weakref.finalize(self, _end, self._shared, self._threads, self._owner)
        self._end.atexit = False
        _running.add(self)
        _end_all_at_exit()
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Batches that are made and not yet asked for."""
        return len(self._shared.finished)

    def close(self) -> None:
        """End the threads."""
        self._end()

    def __iter__(self) -> "ThreadedBatches":
        return self

    def __next__(self) -> tuple[Task, Made]:
        if os.getpid() != self._owner:
            raise UsageError(
                "This iterator was made in another process and its threads are there. Call"
                " iter(loader) in the process that uses it."
            )
        shared = self._shared
        with shared.changed:
            number = shared.delivered
            self._wait(number)
            if number not in shared.finished:
                raise StopIteration
            made = shared.finished.pop(number)
            task = shared.given.pop(number)
            shared.delivered += 1
            shared.changed.notify_all()
        if isinstance(made, BaseException):
            try:
                raise made
            finally:
                del made  # its traceback holds this frame, and so the threads
        return task, made

    def _wait(self, number: int) -> None:
        shared, started, reminded = self._shared, time.monotonic(), False
        while number not in shared.finished:
            if shared.stopped or (shared.exhausted and number >= shared.taken):
                return
            shared.changed.wait(_CHECK_S)
            if number in shared.finished:
                return
            if not any(thread.is_alive() for thread in self._threads) and not shared.exhausted:
                raise InternalError("The threads that make batches have ended without a word.")
            if not reminded and time.monotonic() - started > _REMINDER_S:
                reminded = True
                warnings.warn(
                    f"Waiting {_REMINDER_S:.0f} s for a batch; its storage may be slow.",
                    stacklevel=4,
                )


_running: "weakref.WeakSet[ThreadedBatches]" = weakref.WeakSet()


@functools.cache
def _end_all_at_exit() -> None:
    # Exit handlers run backwards, and the native module's holds up every thread that comes out of
    # native code. This one is registered later, so ours have ended by then.
    atexit.register(_end_all)


def _end_all() -> None:
    for batches in list(_running):
        batches.close()


def _end(shared: _Shared, threads: list[threading.Thread], owner: int) -> None:
    if os.getpid() != owner:
        return
    shared.stop()
    if threading.current_thread() in threads:
        # The collector runs this in one of the threads, maybe while it holds what others wait for.
        return
    for thread in threads:
        thread.join(_GRACE_S)
