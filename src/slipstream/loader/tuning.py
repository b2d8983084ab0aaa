"""Chooses the number of workers and how far they work ahead, by what the loop waits for."""

import time
from typing import Any

from slipstream.cpu import usable_cores
from slipstream.loader.auto import MOST_PREFETCH, AutoCount
from slipstream.loader.choice import Choice
from slipstream.loader.made import Made

_WINDOW = 8  # batches, and at least
_WINDOW_S = 0.5
_TOLERATED_WAIT = 0.03
_IDLE = 0.4
_BUSY = 0.7
_GAIN = 1.05
_MOST_PER_CORE = 4
_BYTE_BUDGET_SHARE = 0.25


class Tuner:
    """Looks at windows of some batches, changes one thing, and keeps it if the loop got faster.

    More workers where the loop waits and all workers are busy; more batches ahead where it waits
    though workers idle; fewer workers where they idle and the loop never waits. A change that did
    not help is taken back and not tried again until the loop's own pace changes.
    """

    def __init__(self, choice: Choice, *, workers: bool, prefetch: bool, core_limit: int) -> None:
        self._choice = choice
        self._may_change_workers = workers
        self._may_change_prefetch = prefetch
        self._limit = core_limit
        self._tried: tuple[str, int, float] | None = None
        self._given_up: set[str] = set()
        self._settled_pace = 0.0
        self.begin()

    @classmethod
    def of(cls, loader: Any) -> "Tuner | None":
        """The loader's tuner, if there is anything that it may choose."""
        workers = isinstance(loader.num_workers, AutoCount)
        prefetch = isinstance(loader.prefetch_factor, AutoCount)
        if not (workers or prefetch):
            return None
        if loader._tuner is None or loader._tuner._choice is not loader.choice:
            loader._tuner = cls(
                loader.choice, workers=workers, prefetch=prefetch, core_limit=usable_cores()
            )
        loader._tuner.begin()
        tuner: Tuner = loader._tuner
        return tuner

    def begin(self) -> None:
        """An epoch begins. Its first batch waits for workers to start, and counts for nothing."""
        self._is_starting = True
        self._reset()

    def _reset(self) -> None:
        self._began = time.perf_counter()
        self._batches = 0
        self._wait_s = 0.0
        self._busy_s = 0.0
        self._cpu_s = 0.0
        self._batch_bytes = 0

    def made(self, made: Made) -> None:
        """A batch came; it took a worker so long."""
        self._busy_s += made.fetch_s + made.collate_s
        self._cpu_s += made.cpu_s
        self._batch_bytes = max(self._batch_bytes, made.nbytes)

    def observe(self, wait_s: float) -> None:
        """The loop waited so long for it."""
        if self._is_starting:
            self._is_starting = False
            self._reset()
            return
        self._batches += 1
        self._wait_s += wait_s
        elapsed = time.perf_counter() - self._began
        if self._batches < _WINDOW or elapsed < _WINDOW_S:
            return
        self._judge(elapsed)
        self._reset()

    def _judge(self, elapsed: float) -> None:
        rate = self._batches / elapsed
        waits = self._wait_s / elapsed
        busy = self._busy_s / (elapsed * max(1, self._choice.workers))
        pace = self._batches / max(1e-9, elapsed - self._wait_s)
        if self._given_up and not 0.7 < pace / self._settled_pace < 1.4:
            self._given_up.clear()
        if self._tried is not None and self._has_failed(rate):
            return
        self._tried = None
        self._settled_pace = pace
        numbers = f"the loop waits {waits:.0%} of the time, workers are busy {busy:.0%}"
        workers = self._choice.workers
        if waits > _TOLERATED_WAIT:
            # Workers that are busy all the time get nowhere by working further ahead.
            remedies = ("workers",) if busy >= _BUSY else ("prefetch", "workers")
            for what in remedies:
                if self._may_grow(what):
                    self._change(what, getattr(self._choice, what) + 1, rate, numbers)
                    return
        elif (
            busy < _IDLE and waits < _TOLERATED_WAIT / 3 and workers > 1
            and self._may_change_workers and "fewer" not in self._given_up
        ):  # fmt: skip
            self._change("fewer", workers - 1, rate, numbers)

    def _may_grow(self, what: str) -> bool:
        if what in self._given_up:
            return False
        if what == "workers":
            return self._may_change_workers and self._choice.workers < self._most_workers()
        return self._may_change_prefetch and self._choice.prefetch < self._most_prefetch()

    def _most_workers(self) -> int:
        """As many as the cores can run: workers that mostly wait for storage leave them free."""
        share = self._cpu_s / self._busy_s if self._cpu_s and self._busy_s else 1.0
        by_cores = int(self._limit / min(1.0, max(share, 1 / _MOST_PER_CORE)))
        return min(by_cores, self._batches_that_fit() // self._choice.prefetch)

    def _most_prefetch(self) -> int:
        return max(2, min(MOST_PREFETCH, self._batches_that_fit() // self._choice.workers))

    def _batches_that_fit(self) -> int:
        import psutil

        budget = _BYTE_BUDGET_SHARE * psutil.virtual_memory().available
        return int(budget / max(1, self._batch_bytes))

    def _change(self, what: str, value: int, rate: float, numbers: str) -> None:
        name = "prefetch" if what == "prefetch" else "workers"
        self._tried = (what, getattr(self._choice, name), rate)
        self._set(name, value, numbers)

    def _has_failed(self, rate: float) -> bool:
        assert self._tried is not None
        what, before, old_rate = self._tried
        self._tried = None
        enough = old_rate * (0.97 if what == "fewer" else _GAIN)
        if rate >= enough:
            return False
        self._given_up.add(what)
        name = "prefetch" if what == "prefetch" else "workers"
        self._set(name, before, f"{rate:.1f} batches/s, {old_rate:.1f} before: no gain")
        return True

    def _set(self, name: str, value: int, numbers: str) -> None:
        choice = self._choice
        choice.history.append(f"{name} {getattr(choice, name)} → {value}: {numbers}")
        setattr(choice, name, value)
        choice.workers_why = numbers
