"""Batches made ahead by threads of this process, which call native code without the GIL."""

import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from slipstream.errors import InternalError, UsageError
from slipstream.loader.exits import close_at_exit
from slipstream.loader.made import Made
from slipstream.loader.plan import Task

_CHECK_S = 5.0
_REMINDER_S = 60.0
_GRACE_S = 30.0


def without_catcher(error: Exception) -> Exception:
    """A caught error that can be kept: its traceback does not hold the frame that caught it."""
    trace = error.__traceback__
    return error.with_traceback(trace.tb_next if trace is not None else None)


# Of a group of tasks, in their order: batches, or what went wrong with them.
MakeGroup = Callable[[Sequence[Task]], Sequence[Made | BaseException]]


def one_by_one(make: Callable[[Task], Made]) -> MakeGroup:
    """For a maker of single batches: what is wrong with one is nothing to the others."""

    def attempt(task: Task) -> Made | BaseException:
        try:
            return make(task)
        except BaseException as error:  # raised where the batch is asked for
            return error

    return lambda tasks: [attempt(task) for task in tasks]


class _Shared:
    """What the threads and the iterator share. Holds no reference to the iterator, so that one
    that is dropped can be collected and ends its threads.
    """

    def __init__(self, make: MakeGroup) -> None:
        self.make = make
        lock = threading.RLock()
        self.given = threading.Condition(lock)
        self.made = threading.Condition(lock)
        self.todo: deque[tuple[int, list[Task]]] = deque()
        self.finished: dict[int, Made | BaseException] = {}
        self.stopped = False

    def work(self) -> None:
        """Body of a thread."""
        while (claimed := self._claim()) is not None:
            number, tasks = claimed
            results: Sequence[Made | BaseException]
            try:
                results = self.make(tasks)
            except BaseException as error:  # handed to the loop that asks for these batches
                results = [error] * len(tasks)
            with self.made:
                self.finished.update(enumerate(results, number))
                self.made.notify_all()
            del results, tasks, claimed

    def _claim(self) -> tuple[int, list[Task]] | None:
        with self.given:
            while not self.stopped and not self.todo:
                self.given.wait()
            return None if self.stopped else self.todo.popleft()

    def stop(self) -> None:
        """Have the threads end after what they are at."""
        with self.given:
            self.stopped = True
            self.todo.clear()
            self.finished.clear()
            self.given.notify_all()
            self.made.notify_all()


class ThreadedBatches:
    """Iterator over `(task, Made)` in the order of the tasks, made by `threads` threads, at most
    `depth` ahead. A thread takes tasks for `group()` samples at once, but the first alone: someone
    waits for it. There are at most as many groups as threads, or as the depth allows.

    Tasks are drawn in the thread that asks for batches: a sampler of the user's may draw from
    generators that the training loop draws from as well.
    """

    def __init__(
        self, make: MakeGroup, tasks: Iterator[Task], *, threads: int, depth: int,
        group: Callable[[], int] = lambda: 1,
        observe: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        """`observe` is told how long the loop waited for each batch."""
        self.observe = observe or (lambda wait_s: None)
        self._shared = _Shared(make)
        self._tasks = tasks
        self._depth = depth
        self._group = group
        self._group_ends: deque[int] = deque()  # of groups that were not delivered whole
        self._given: dict[int, Task] = {}
        self._drawn = 0
        self._delivered = 0
        self._failure: BaseException | None = None
        self.failed: Task | None = None
        self._owner = os.getpid()
        self._threads = [
            threading.Thread(target=self._shared.work, name=f"slipstream-batches-{k}", daemon=True)
            for k in range(threads)
        ]
        self._end = weakref.finalize(self, _end, self._shared, self._threads, self._owner)
        self._end.atexit = False
        close_at_exit(self)
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
        self._hand_out()
        number = self._delivered
        if number not in self._given:
            return self._end_of_tasks()
        made = self._wait(number)
        task = self._given.pop(number)
        self._delivered += 1
        self._hand_out()
        if isinstance(made, BaseException):
            self.failed = task
            try:
                raise made
            finally:
                del made  # its traceback holds this frame, and so the threads
        return task, made

    def _hand_out(self) -> None:
        while self._group_ends and self._group_ends[0] <= self._delivered:
            self._group_ends.popleft()
        while self._failure is None:
            is_full = self._drawn - self._delivered >= self._depth
            if is_full and len(self._group_ends) >= len(self._threads):
                return
            group = self._draw(self._group() if self._drawn else 1)
            if group:
                first, self._drawn = self._drawn, self._drawn + len(group)
                self._group_ends.append(self._drawn)
                self._given.update(enumerate(group, first))
                with self._shared.given:
                    self._shared.todo.append((first, group))
                    self._shared.given.notify()

    def _draw(self, samples: int) -> list[Task]:
        """Tasks for about so many samples; one at least."""
        group: list[Task] = []
        count = last = 0
        try:
            while not group or count + last <= samples:
                group.append(next(self._tasks))
                last = max(1, len(group[-1].indices))
                count += last
        except Exception as error:  # raised when the batches before it have been had
            self._failure = without_catcher(error)
        return group

    def _end_of_tasks(self) -> NoReturn:
        failure, self._failure = self._failure, StopIteration()
        try:
            raise failure or StopIteration
        finally:
            del failure

    def _wait(self, number: int) -> Made | BaseException:
        shared, started, reminded = self._shared, time.monotonic(), False
        with shared.made:
            while number not in shared.finished:
                if shared.stopped:
                    raise StopIteration
                shared.made.wait(_CHECK_S)
                if not any(thread.is_alive() for thread in self._threads):
                    raise InternalError("The threads that make batches have ended without a word.")
                if not reminded and time.monotonic() - started > _REMINDER_S:
                    reminded = True
                    warnings.warn(
                        f"Waiting {_REMINDER_S:.0f} s for a batch; its storage may be slow.",
                        stacklevel=4,
                    )
            return shared.finished.pop(number)

    def interrupt(self) -> None:
        """Make whoever waits for a batch return. From any thread."""
        self._shared.stop()


def _end(shared: _Shared, threads: list[threading.Thread], owner: int) -> None:
    if os.getpid() != owner:
        return
    shared.stop()
    if threading.current_thread() in threads:
        # The collector runs this in one of the threads, maybe while it holds what others wait for.
        return
    deadline = time.monotonic() + _GRACE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
