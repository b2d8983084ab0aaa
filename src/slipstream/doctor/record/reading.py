"""Watches a process that reads samples: a loader's worker, or the loop's own process."""

import dataclasses
import json
import math
import operator
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from slipstream.doctor.capture import Process, StageTimes
from slipstream.doctor.record import counters
from slipstream.doctor.record.conversions import time_conversions
from slipstream.doctor.record.libraries import time_libraries
from slipstream.doctor.record.mailbox import Mailbox
from slipstream.doctor.record.opens import OpenCount as OpenCount  # noqa: PLC0414  # for others
from slipstream.doctor.record.opens import count_opens
from slipstream.doctor.record.sampler import Sampler
from slipstream.doctor.record.stages import StageLog
from slipstream.doctor.record.transforms import time_classes, time_functions
from slipstream.patches import Patches

_KEPT_BATCHES = 2000
_WRITE_NS = 200_000_000
_MEMORY_NS = 150_000_000  # and ever longer: it takes milliseconds
_MEMORY_GROWTH = 1.5
_WATCHED_FIRST = 3  # batches
_LEAST_SEEN = 2  # batches that are looked into, and others, to tell what that takes
_MOST_WATCHING = 0.01  # of the time of batches
_LONGEST_PERIOD = 16
_SAMPLE_S = 0.02

_wall = time.perf_counter_ns
_cpu = time.thread_time_ns
_all_cpu = time.process_time_ns


class Reading:
    """Collects a `Process`. One for a process and loader; the hooks of a process go to one log."""

    def __init__(
        self, process: Process, log: StageLog, mailbox: Mailbox | None = None,
        opened: Process | None = None,
    ) -> None:  # fmt: skip
        """`opened` counts the files of a process that does more than read; what it opens while it
        reads is this reading's.
        """
        self.process = process
        self.log = log
        self._opened = opened
        self._mailbox = mailbox
        self._written = self._parallel = 0
        self._measured = process.began
        self._memory_ns: float = _MEMORY_NS
        self._sampler: Sampler | None = None
        self._start_counts = counters.read_counts()
        # The hooks of a process time all that it reads; what this reading takes is its own.
        # The first batch is a beginning: imports, files opened, memory touched. What it took
        # stands for all only as long as there is no other.
        self._times: dict[str, StageTimes] = {}
        self._first_times: dict[str, StageTimes] = {}
        self.sample_shape: dict[int, int] = {}
        self._first_shape: dict[int, int] = {}
        self._watched = self._watched_busy = 0
        # Batches behind the first ones, whose time is that of a beginning: [count, time].
        self._later_watched, self._later_plain = [0, 0], [0, 0]
        self._period = 1
        self.own_ns = 0  # what watching took beside the batches
        # Of a worker: before it reads, around its first batch, and for one of its letters.
        self.own_parts = {"set_up": 0, "first": 0, "write": 0}
        self.watch_samples: Callable[[bool], None] = lambda watched: None

    def sample(self) -> None:
        """Look where the thread is, from now on."""
        self._sampler = Sampler(_SAMPLE_S, lambda: self.log.current)
        self.process.sample_interval = int(_SAMPLE_S * 1e9)
        self._sampler.start()

    def fetch(self, function: Callable[[Any], Any], index: Any) -> Any:
        """One batch. Where samples are so quick that timing each of them would be felt, only some
        batches are looked into.
        """
        entered = _wall()
        process, log = self.process, self.log
        is_watched = process.batch_count < _WATCHED_FIRST or not process.batch_count % self._period
        calls, outer = log.calls, log.times
        log.times = self._times if process.batch_count else self._first_times
        shared = self._shared_counts() if self._opened is not None else None
        is_batch = True
        start, cpu, all_cpu, delay = _wall(), _cpu(), _all_cpu(), counters.run_delay()
        try:
            if not is_watched:
                return self._fetch_unwatched(function, index)
            with time_conversions(log):
                return log.call("fetch", function, index)
        except StopIteration:  # the end of an IterableDataset, no batch
            is_batch = False
            raise
        finally:
            end, used = _wall(), _cpu() - cpu
            delayed = None if delay is None else (counters.run_delay() or 0) - delay
            self._parallel += max(0, _all_cpu() - all_cpu - used)
            log.times = outer
            if shared is not None:
                self._add_counts(shared)
            if is_batch:
                self._count(start, end, used, delayed, is_watched)
                if is_watched:
                    self._note_watched(end - start, log.calls - calls)
                if isinstance(index, (list, tuple)) and index[:1] != [None]:
                    process.samples += len(index)  # those of an iterable count themselves
            self.write(end)
            own = _wall() - entered - (end - start)
            self.own_ns += own
            if process.batch_count == 1:
                self.own_parts["first"] = own

    def _count(
        self, start: int, end: int, used: int, delayed: int | None, is_watched: bool
    ) -> None:
        process = self.process
        process.batches.append([process.batch_count, start, end, used, delayed or 0])
        del process.batches[:-_KEPT_BATCHES]
        process.batch_count += 1
        process.busy += end - start
        if delayed is not None:
            process.run_delay = (process.run_delay or 0) + delayed
        if process.batch_count == 1:
            process.facts["first_batch"] = [end - start, delayed or 0]
        if process.batch_count > _WATCHED_FIRST:
            later = self._later_watched if is_watched else self._later_plain
            later[0] += 1
            later[1] += end - start

    def _fetch_unwatched(self, function: Callable[[Any], Any], index: Any) -> Any:
        log, stage = self.log, self.log.current
        was_on, log.is_on, log.current = log.is_on, False, "dataset"
        self.watch_samples(False)
        try:
            return function(index)
        finally:
            self.watch_samples(True)
            log.is_on, log.current = was_on, stage

    def _note_watched(self, took: int, calls: int) -> None:
        self._watched += 1
        self._watched_busy += took
        share = max(calls * self.log.call_ns, self._excess()) / max(1, took)
        self._period = min(_LONGEST_PERIOD, max(1, math.ceil(share / _MOST_WATCHING)))

    def _excess(self) -> float:
        """Nanoseconds that looking into a batch makes it take longer, where that was seen."""
        (watched, took), (plain, otherwise) = self._later_watched, self._later_plain
        if watched < _LEAST_SEEN or plain < _LEAST_SEEN:
            return 0.0
        return max(0.0, took / watched - otherwise / plain)

    def _shared_counts(self) -> tuple[int | None, ...]:
        assert self._opened is not None
        return (self._opened.opens, self._opened.opened_again, *counters.read_counts())

    def _add_counts(self, before: tuple[int | None, ...]) -> None:
        process = self.process
        names = ("opens", "opened_again", "read_chars", "read_bytes")
        for name, old, new in zip(names, before, self._shared_counts(), strict=True):
            if old is not None and new is not None:
                setattr(process, name, (getattr(process, name) or 0) + new - old)

    def note_sample(self) -> None:
        """The latest call was a sample, with all that is inside it."""
        if not self.log.is_on:
            return
        shape = self.sample_shape if self.process.batch_count else self._first_shape
        bits = (self.log.took // 1000).bit_length()
        shape[bits] = shape.get(bits, 0) + 1

    def write(self, now: int | None = None, *, force: bool = False) -> None:
        """Tell the recorder, not too often."""
        now = now or _wall()
        # Of the loop's own process the recorder knows it. A short life says nothing.
        late = force and bool(self.process.memory)
        if self._opened is None and (late or now - self._measured > self._memory_ns):
            self._measured = now
            self._memory_ns *= _MEMORY_GROWTH
            self._measure_memory(now)
        if self._mailbox is not None and (now - self._written > _WRITE_NS or force):
            self._written = now
            start = _wall()
            text = json.dumps(dataclasses.asdict(self.finished()), separators=(",", ":"))
            if not self._mailbox.write(text.encode()):
                del self.process.batches[: len(self.process.batches) // 2]
            self.own_parts["write"] = _wall() - start

    def finished(self) -> Process:
        """What is known so far."""
        process = self.process
        process.stages = {
            name: self._of_all_batches(times)
            for name, times in (self._times if self._has_later else self._first_times).items()
            if name
        }
        if self._sampler is not None:
            process.lines = self._sampler.lines()
        if self._opened is None:
            self._count_reads()
        else:
            process.folders = self._opened.folders
        process.threads = counters.threads()
        process.library_threads = library_threads()
        process.facts |= {
            "sample_shape": self.sample_shape if self._has_later else self._first_shape,
            "transforms": self.log.transforms,
            "pictures": self.log.pictures,
            "parallel_cpu": self._parallel,
            "call_ns": round(self.log.call_ns * self._watched / max(1, process.batch_count)),
            "filesystems": _filesystems(process.folders),
            # Nanoseconds that it takes to look into a batch, into how many that was done, and
            # into which share of those behind the first ones.
            "watching": [
                round(self._excess()),
                self._watched,
                self._later_watched[0] / max(1, self._later_watched[0] + self._later_plain[0]),
            ],
        }
        if self._mailbox is not None:
            process.facts["watching_ns"] = dict(self.own_parts)
        return process

    @property
    def _has_later(self) -> bool:
        """Whether there is a batch behind the first."""
        return self.process.batch_count > 1

    def _of_all_batches(self, times: StageTimes) -> StageTimes:
        """What was seen in batches that were looked into, of all."""
        batches, watched = self.process.batch_count, self._watched
        busy, watched_busy = self.process.busy - self._excess() * watched, self._watched_busy
        if self._has_later:  # without the first, which was looked into
            first = self.process.facts["first_batch"][0]
            busy, watched_busy = busy - first, watched_busy - first
            busy *= batches / (batches - 1)
            watched -= 1
        time = busy / max(1, watched_busy)
        return dataclasses.replace(
            times, count=round(times.count * batches / max(1, watched)),
            wall=round(times.wall * time), cpu=round(times.cpu * time),
        )  # fmt: skip

    def _measure_memory(self, now: int) -> None:
        memory = counters.memory()
        if memory is not None:
            self.process.memory.append([now, *memory])

    def _count_reads(self) -> None:
        for name, count in zip(
            ("read_chars", "read_bytes"),
            zip(counters.read_counts(), self._start_counts, strict=True),
            strict=True,
        ):
            after, before = count
            if after is not None and before is not None:
                setattr(self.process, name, after - before)


_kinds: dict[str, str | None] = {}


def _filesystems(folders: dict[str, int]) -> dict[str, str | None]:
    """Of the folders that most files lie in."""
    most = sorted(folders, key=lambda folder: -folders[folder])[:8]
    for folder in most:
        if folder not in _kinds:
            _kinds[folder] = counters.filesystem(folder)
    return {folder: _kinds[folder] for folder in most}


def library_threads() -> dict[str, int]:
    """How many threads the libraries in this process would use."""
    found: dict[str, int] = {}
    cv2 = sys.modules.get("cv2")
    if cv2 is not None and hasattr(cv2, "getNumThreads"):
        found["cv2"] = int(cv2.getNumThreads())
    found["torch"] = int(torch.get_num_threads())
    return found


class Hooks:
    """The hooks of a process that reads, installed once; more libraries join as they come."""

    def __init__(self, log: StageLog) -> None:
        self.patches = Patches()
        self._log = log
        self._done: set[str] = set()

    def look_at(self, dataset: Any) -> list[str]:
        """Time what is imported by now and what this dataset holds; names of its transforms."""
        time_libraries(self._log, self.patches, self._done)
        count_opens(self.patches, self._done)
        return time_classes(dataset, self._log, self.patches, self._done)

    def look_inside(self, dataset: Any) -> None:
        """In the process that reads: time what could not be pickled, too."""
        time_functions(dataset, self._log, self.patches)


def time_fetcher(fetcher: Any, reading: Reading) -> Any:
    """torch's fetcher with its batches, samples and collate timed."""
    log, fetch, collate = reading.log, fetcher.fetch, fetcher.collate_fn
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = _TimedIterator(fetcher.dataset_iter, reading)
    else:
        plain, timed = fetcher.dataset, _TimedDataset(fetcher.dataset, reading)
        fetcher.dataset = timed

        def watch_samples(watched: bool) -> None:
            fetcher.dataset = timed if watched else plain

        reading.watch_samples = watch_samples
    fetcher.collate_fn = lambda samples: log.call("collate", collate, samples)
    fetcher.fetch = lambda index: reading.fetch(fetch, index)
    return fetcher


class _TimedDataset:
    """A dataset as the fetcher alone sees it."""

    def __init__(self, dataset: Any, reading: Reading) -> None:
        # Those with `__getitems__` may have nothing else.
        self._get = partial(operator.getitem, dataset)
        self._reading, self._log = reading, reading.log
        many = getattr(dataset, "__getitems__", None)
        if many:
            self.__getitems__ = lambda indices: reading.log.call("dataset", many, indices)

    def __getitem__(self, index: Any) -> Any:
        sample = self._log.call("dataset", self._get, index)
        self._reading.note_sample()
        return sample


class _TimedIterator:
    def __init__(self, samples: Any, reading: Reading) -> None:
        self._samples = samples
        self._reading = reading

    def __next__(self) -> Any:
        reading = self._reading
        sample = reading.log.call("dataset", next, self._samples)
        reading.note_sample()
        reading.process.samples += 1
        return sample


FOLDER_VARIABLE = "SLIPSTREAM_DOCTOR_FOLDER"


def mailbox_path(folder: Path) -> Path:
    """Where this process writes."""
    return folder / f"worker-{os.getpid()}.box"
