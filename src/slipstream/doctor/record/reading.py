"""Watches a process that reads samples: a loader's worker, or the loop's own process."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipstream.doctor.capture import Process
from slipstream.doctor.record import counters
from slipstream.doctor.record.libraries import time_libraries, time_transforms
from slipstream.doctor.record.mailbox import Mailbox
from slipstream.doctor.record.patches import Patches
from slipstream.doctor.record.rungs import COLD_FILES, Rungs, evict
from slipstream.doctor.record.sampler import Sampler
from slipstream.doctor.record.stages import StageLog

_KEPT_BATCHES = 2000
_MOST_PATHS = 20_000
_WRITE_NS = 200_000_000
_MEMORY_NS = 5_000_000_000  # it takes milliseconds
_SAMPLE_S = 0.02
_OPEN_FLAGS = os.O_WRONLY | os.O_RDWR

_wall = time.perf_counter_ns
_cpu = time.thread_time_ns


class Reading:
    """Collects a `Process`. One for a process and loader; the hooks of a process go to one log."""

    def __init__(self, process: Process, log: StageLog, mailbox: Mailbox | None = None) -> None:
        self.process = process
        self.log = log
        self._mailbox = mailbox
        self._written = self._measured = 0
        self._sampler: Sampler | None = None
        self._start_counts = counters.read_counts()

    def sample(self) -> None:
        """Look where the thread is, from now on."""
        self._sampler = Sampler(_SAMPLE_S, lambda: self.log.current)
        self.process.sample_interval = int(_SAMPLE_S * 1e9)
        self._sampler.start()

    def fetch(self, function: Callable[[Any], Any], index: Any) -> Any:
        """One batch."""
        process = self.process
        start, cpu, delay = _wall(), _cpu(), counters.run_delay()
        try:
            return self.log.call("fetch", function, index)
        finally:
            end = _wall()
            delayed = (counters.run_delay() or 0) - (delay or 0)
            process.batches.append([process.batch_count, start, end, _cpu() - cpu, delayed])
            del process.batches[:-_KEPT_BATCHES]
            process.batch_count += 1
            process.busy += end - start
            if delay is not None:
                process.run_delay = (process.run_delay or 0) + delayed
            if isinstance(index, (list, tuple)):
                process.samples += len(index)
            self.write(end)

    def write(self, now: int | None = None, *, force: bool = False) -> None:
        """Tell the recorder, not too often."""
        now = now or _wall()
        if now - self._measured > _MEMORY_NS or force:
            self._measured = now
            self._measure(now)
        if self._mailbox is not None and (now - self._written > _WRITE_NS or force):
            self._written = now
            text = json.dumps(dataclasses.asdict(self.finished()), separators=(",", ":"))
            if not self._mailbox.write(text.encode()):
                del self.process.batches[: len(self.process.batches) // 2]

    def finished(self) -> Process:
        """What is known so far."""
        self.process.stages = self.log.times
        if self._sampler is not None:
            self.process.lines = self._sampler.lines()
        return self.process

    def _measure(self, now: int) -> None:
        process = self.process
        process.threads = counters.threads()
        memory = counters.memory()
        if memory is not None:
            process.memory.append([now, *memory])
        for name, count in zip(
            ("read_chars", "read_bytes"),
            zip(counters.read_counts(), self._start_counts, strict=True),
            strict=True,
        ):
            after, before = count
            if after is not None and before is not None:
                setattr(process, name, after - before)
        process.library_threads = library_threads()


def library_threads() -> dict[str, int]:
    """How many threads the libraries in this process would use."""
    found: dict[str, int] = {}
    cv2 = sys.modules.get("cv2")
    if cv2 is not None and hasattr(cv2, "getNumThreads"):
        found["cv2"] = int(cv2.getNumThreads())
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = int(torch.get_num_threads())
    return found


class OpenCount:
    """Counts the files that a process opens for reading, by an audit hook, which stays for ever."""

    def __init__(self, process: Process, rungs: Rungs) -> None:
        self._process = process
        self._rungs = rungs
        self._seen: set[str] = set()
        self.is_on = True
        sys.addaudithook(self._note)

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or not self.is_on:
            return
        path, _, flags = args
        if not isinstance(path, str) or (isinstance(flags, int) and flags & _OPEN_FLAGS):
            return
        if path.startswith(("/proc/", "/sys/", "/dev/")) or path.endswith((".py", ".pyc", ".so")):
            return
        if self._rungs.now == COLD_FILES:
            self.is_on = False  # evicting opens the file, too
            evict(path)
            self.is_on = True
        process = self._process
        process.opens += 1
        if path in self._seen:
            process.opened_again += 1
        elif len(self._seen) < _MOST_PATHS:
            self._seen.add(path)
        folder = path.rpartition("/")[0] or "."
        if folder in process.folders or len(process.folders) < 64:
            process.folders[folder] = process.folders.get(folder, 0) + 1


class Hooks:
    """The hooks of a process that reads, installed once; more libraries join as they come."""

    def __init__(self, log: StageLog) -> None:
        self.patches = Patches()
        self._log = log
        self._done: set[str] = set()

    def look_at(self, dataset: Any) -> list[str]:
        """Time what is imported by now and what this dataset holds; names of its transforms."""
        time_libraries(self._log, self.patches, self._done)
        return time_transforms(dataset, self._log, self.patches, self._done)


def time_fetcher(fetcher: Any, reading: Reading) -> Any:
    """torch's fetcher with its batches, samples and collate timed."""
    log, fetch, collate = reading.log, fetcher.fetch, fetcher.collate_fn
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = _TimedIterator(fetcher.dataset_iter, log)
    else:
        fetcher.dataset = _TimedDataset(fetcher.dataset, log)
    fetcher.collate_fn = lambda samples: log.call("collate", collate, samples)
    fetcher.fetch = lambda index: reading.fetch(fetch, index)
    return fetcher


class _TimedDataset:
    """A dataset as the fetcher alone sees it."""

    def __init__(self, dataset: Any, log: StageLog) -> None:
        self._get = dataset.__getitem__
        self._log = log
        many = getattr(dataset, "__getitems__", None)
        if many:
            self.__getitems__ = lambda indices: log.call("dataset", many, indices)

    def __getitem__(self, index: Any) -> Any:
        return self._log.call("dataset", self._get, index)


class _TimedIterator:
    def __init__(self, samples: Any, log: StageLog) -> None:
        self._samples = samples
        self._log = log

    def __next__(self) -> Any:
        return self._log.call("dataset", next, self._samples)


FOLDER_VARIABLE = "SLIPSTREAM_DOCTOR_FOLDER"


def mailbox_path(folder: Path) -> Path:
    """Where this process writes."""
    return folder / f"worker-{os.getpid()}.box"
