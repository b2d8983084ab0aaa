"""One epoch through worker processes: who makes which batch, and in which order they come."""

import time
import warnings
from collections.abc import Iterator
from typing import Any

from slipstream.loader.choice import Choice
from slipstream.loader.made import Made
from slipstream.loader.plan import Task
from slipstream.loader.pool import Pool, Timeout, shorten
from slipstream.loader.threaded import without_catcher
from slipstream.loader.tuning import Tuner

_REMINDER_S = 60.0


class WorkerBatches:
    """Iterator over `(task, Made)`. Batch k is made by worker k modulo their number, as in torch,
    so that a worker's own random numbers run as they do there.
    """

    def __init__(
        self, pool: Pool, tasks: Iterator[Task], epoch: int, *, choice: Choice, in_order: bool,
        timeout_s: float, keep_pool: bool, tuner: Tuner | None,
    ) -> None:  # fmt: skip
        self._choice = choice
        self._pool = pool
        self._tasks = tasks
        self._epoch = epoch
        self._in_order = in_order
        self._timeout_s = timeout_s
        self._keep_pool = keep_pool
        self._tuner = tuner
        self._given: dict[int, tuple[Task, int]] = {}
        self._came: dict[int, Any] = {}
        self._more = True
        self._failure: Exception | None = None
        self._turn = 0
        self.failed: Task | None = None
        self.is_ended = False
        pool.add_user(self)

    @property
    def processes(self) -> list[Any]:
        """The worker processes; more may join."""
        return self._pool.processes

    def close(self) -> None:
        """End the workers, unless they are to be kept."""
        self._given.clear()
        self._came.clear()
        self.is_ended = True
        if self._keep_pool:
            self._pool.resume()
        else:
            self._pool.close()

    def interrupt(self) -> None:
        """Make whoever waits for a batch return. From any thread."""
        self._pool.interrupt()

    def accept(self, number: int, made: Any) -> None:
        """A batch or a failure has come for a task of this iteration."""
        if number in self._given:
            self._came[number] = made

    def observe(self, wait_s: float) -> None:
        """The loop waited so long; see `Tuner`."""
        if self._tuner is not None:
            self._tuner.observe(wait_s)

    @property
    def waiting(self) -> int:
        """Batches that are made and not yet asked for."""
        return len(self._came)

    def __iter__(self) -> "WorkerBatches":
        return self

    def __next__(self) -> tuple[Task, Made]:
        self._pool.check()
        try:
            self._hand_out(starts=self._choice.workers)
            if not self._given:
                self._raise_failure()
            number = self._wait()
            made = self._came.pop(number)
            task, _ = self._given.pop(number)
            self._hand_out(starts=1)
        except (Timeout, StopIteration):
            raise
        except BaseException:
            # Ctrl-C, say: a message may be half sent or half read, so there is no going on.
            self._pool.close()
            raise
        if isinstance(made, Made):
            if self._tuner is not None:
                self._tuner.made(made)
            return task, made
        self.failed = task
        try:
            made.reraise()
        except Exception as error:
            # Without torch's frame, which holds the exception and is held by it, and with it us.
            raise error.with_traceback(None) from None
        raise AssertionError("an exception was re-raised")

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        try:
            raise StopIteration if failure is None else failure
        finally:
            del failure  # its traceback holds this frame

    def _hand_out(self, starts: int) -> None:
        """Give out tasks. Starting a process takes the loop's time: at most `starts` are started,
        and none once the batch that the loop waits for is there.
        """
        while self._more and len(self._given) < self._choice.workers * self._choice.prefetch:
            if self._turn % self._choice.workers >= len(self._pool.workers):
                if starts == 0 or self._is_ready():
                    return
                starts -= 1
            try:
                task = next(self._tasks, None)
            except Exception as error:  # of the sampler; comes after the batches before it
                self._failure = without_catcher(error)
                task = None
            if task is None:
                self._more = False
                return
            worker = self._choose_worker()
            number = self._pool.send(worker, self._epoch, task, self)
            self._given[number] = (task, worker)

    def _is_ready(self) -> bool:
        if not self._given or not self._pool.workers:
            return False
        self._pool.receive(0)  # of a death `_wait` tells
        return self._next_ready() is not None

    def _choose_worker(self) -> int:
        workers = self._choice.workers
        for _ in range(workers):
            worker = self._turn % workers
            self._turn += 1
            if self._in_order or worker >= len(self._pool.workers):
                break
            if self._pool.workers[worker].busy < self._choice.prefetch:
                break
        return worker

    def _next_ready(self) -> int | None:
        if self._in_order:
            first = min(self._given)
            return first if first in self._came else None
        return next(iter(self._came), None)

    def _wait(self) -> int:
        started = time.monotonic()
        reminded = False
        while (number := self._next_ready()) is None:
            waited = time.monotonic() - started
            limit = _REMINDER_S - waited if not reminded else None
            if self._timeout_s > 0:
                limit = self._timeout_s - waited
                if limit <= 0:
                    raise Timeout(
                        f"DataLoader timed out after {self._timeout_s} seconds, in which"
                        f" {self._describe_first()} did not come."
                    )
            elif limit is not None and limit <= 0:
                reminded = True
                self._remind()
                limit = None
            dead = self._pool.receive(limit)
            if self._pool.is_interrupted:
                raise StopIteration
            if dead is not None:
                tasks = [task for n, (task, _) in self._given.items() if self._is_from(n, dead)]
                self._pool.raise_death(dead, tasks[0] if tasks else None)
        return number

    def _is_from(self, number: int, worker: Any) -> bool:
        return number not in self._came and self._pool.workers[self._given[number][1]] is worker

    def _describe_first(self) -> str:
        task, worker = self._given[min(self._given)]
        pid = self._pool.workers[worker].process.pid
        return f"the batch of samples {shorten(task.indices)} from worker {worker} (pid {pid})"

    def _remind(self) -> None:
        warnings.warn(
            f"Waiting {_REMINDER_S:.0f} s for {self._describe_first()}, which is alive and busy."
            " Give the loader a timeout to stop instead.",
            stacklevel=4,
        )
