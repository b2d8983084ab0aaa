"""What if: a training loop with torch's DataLoader, replayed from measured times.

Events follow torch: each worker has a queue and works through it; `workers * prefetch` batches are
on their way at most; a batch that is handed over sends for another. Cores and storage are shared.
The page of the report has the same in web/src/simulate.ts.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slipstream.doctor.pipeline import Pipeline
from slipstream.doctor.sharing import Clock, Process, Shared

Limit = Literal["loop", "workers", "prefetch", "cores", "storage", "copy"]

_STEPS = 200  # that count, at least
_DRAWN_STEPS = 64
_SLICES = 4  # a fetch takes turns between storage and core, as its samples do
_READY_BATCHES = 2  # that lie on the device when batches are copied ahead
_FELT = 0.05  # a wait below this share of a step is noise
_FULL = 0.93  # a resource that is used this much holds the others up


@dataclass(frozen=True)
class LaneSpans:
    """What one worker, the loop, the copies or the device did: (kind, start, end, label) in ms."""

    name: str
    kind: Literal["loop", "worker", "copy", "device"]
    spans: list[tuple[str, float, float, str]]


@dataclass(frozen=True)
class Outcome:
    """Means per step once the loop has settled, and lanes of some steps from there on."""

    step_ms: float
    samples_per_s: float
    wait_ms: float  # the loop waited for data
    idle_ms: float  # the device had nothing to do; without a device, the same
    worker_busy: float  # share of the time
    cores_busy: float
    storage_busy: float
    limit: Limit
    lanes: list[LaneSpans]


def simulate(pipeline: Pipeline) -> Outcome:
    """Run the loop for some hundred steps.

    >>> simulate(Pipeline(workers=0, prefetch=2, batch_size=8, cores=4, fetch_ms=(30.0,),
    ...                   loop_ms=(10.0,))).step_ms
    40.0
    """
    return _Run(pipeline).outcome()


def steps_to_run(workers: int, prefetch: int) -> tuple[int, int]:
    """Steps until all has settled, and steps to count after them: whole rounds of the workers,
    whose batches may come in bursts.
    """
    counted = max(_STEPS, 3 * workers)
    whole = math.ceil(counted / workers) * workers if workers else counted
    return 2 * workers * prefetch + 5, whole


class _Draws:
    """The measured times in a shuffled order, shuffled anew whenever they are through."""

    def __init__(self, values: Sequence[float], seed: int) -> None:
        self._values = list(values)
        self._random = seed
        self._at = len(self._values)

    def next(self) -> float:
        if self._at == len(self._values):
            self._shuffle()
            self._at = 0
        self._at += 1
        return self._values[self._at - 1]

    def _shuffle(self) -> None:
        values = self._values
        for last in range(len(values) - 1, 0, -1):
            # Small enough that JavaScript's numbers hold the product exactly.
            self._random = self._random * 16807 % 2147483647
            other = self._random % (last + 1)
            values[last], values[other] = values[other], values[last]


class _Run:
    """One simulation: the processes, and what they leave behind."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.p = pipeline
        self.skip, self.count = steps_to_run(pipeline.workers, pipeline.prefetch)
        self.cpu = Shared(pipeline.cores)
        self.storage = Shared(_streams(pipeline))
        self.free = Shared(math.inf)
        self.clock = Clock((self.cpu, self.storage, self.free))
        self.fetch_times = _Draws(pipeline.fetch_ms, 1)
        self.loop_times = _Draws(pipeline.loop_ms, 2)
        self.queues: list[deque[tuple[int, float]]] = [deque() for _ in range(pipeline.workers)]
        self.sent = 0
        self.next_worker = 0
        self.taken = 0
        self.worker_of: dict[int, int] = {}  # of batches that are on their way
        self.asked = [0] * pipeline.workers  # how many of these each worker has
        self.arrived: dict[int, None] = {}  # in order of arrival
        self.copied: deque[int] = deque()  # on the device, ahead
        self.jobs: deque[tuple[str, int, float]] = deque()  # of the device's stream
        self.copies_done = 0
        self.ends: list[float] = []
        self.waits: list[float] = []
        self.waited = 0.0  # for the batch that was taken last
        self.used_before = (0.0, 0.0)
        self.spans: dict[str, list[tuple[str, float, float, str]]] = {"loop": []}
        self.worker_processes = [self._worker(number) for number in range(pipeline.workers)]
        self.loop_process = self._loop()
        self.device_process = self._device()
        self.copier_process = self._copier()

    def outcome(self) -> Outcome:
        for process in (*self.worker_processes, self.loop_process):
            self.clock.start(process)
        if self.p.device:
            self.clock.start(self.device_process)
        if self.p.copy_ahead:
            self.clock.start(self.copier_process)
        for _ in range(self.p.workers * self.p.prefetch):
            self._send()
        self.clock.run(self.loop_process)
        return self._summary()

    def _send(self) -> None:
        """Ask the next worker for a batch; without order, the next one that has room."""
        for _ in range(self.p.workers):
            worker = self.next_worker
            self.next_worker = (worker + 1) % self.p.workers
            if self.p.in_order or self.asked[worker] < self.p.prefetch:
                break
        self.asked[worker] += 1
        self.worker_of[self.sent] = worker
        self.queues[worker].append((self.sent, self.fetch_times.next()))
        self.sent += 1
        self.clock.wake(self.worker_processes[worker])

    def _worker(self, number: int) -> Process:
        queue = self.queues[number]
        name = f"worker {number}"
        self.spans[name] = []
        while True:
            while not queue:
                yield None
            batch, ms = queue.popleft()
            began = self.clock.now
            yield from self._fetch(ms)
            self._mark(name, "fetch", began, f"batch {batch}")
            self.arrived[batch] = None
            self.clock.wake(self.copier_process if self.p.copy_ahead else self.loop_process)

    def _fetch(self, ms: float) -> Process:
        cpu_ms = ms * self.p.fetch_cpu_share
        blocked_ms = ms - cpu_ms
        slices = _SLICES if cpu_ms > 0 and blocked_ms > 0 else 1
        for _ in range(slices):
            if blocked_ms > 0:
                yield self.storage, blocked_ms / slices, 1.0
            if cpu_ms > 0:
                yield self.cpu, cpu_ms / slices, 1.0

    def _take(self, lane: str) -> Process:
        """Wait for the next batch and take it over, or make it here where there are no workers."""
        began = self.clock.now
        if self.p.workers == 0:
            yield from self._fetch(self.fetch_times.next())
            self._mark(lane, "next", began, f"batch {self.taken}")
            self.waited = self.clock.now - began
        else:
            while not self.arrived or (self.p.in_order and self.taken not in self.arrived):
                yield None
            batch = self.taken if self.p.in_order else next(iter(self.arrived))
            del self.arrived[batch]
            self._mark(lane, "next", began, f"batch {batch}")
            self.waited = self.clock.now - began
            if self.p.hand_over_ms > 0:
                began = self.clock.now
                yield self.cpu, self.p.hand_over_ms, 1.0
                self._mark(lane, "hand-over", began, f"batch {batch}")
            self.asked[self.worker_of.pop(batch)] -= 1
            self._send()
        self.taken += 1

    def _loop(self) -> Process:
        for step in range(self.skip + self.count):
            began = self.clock.now
            if self.p.copy_ahead:
                while not self.copied:
                    yield None
                self.copied.popleft()
                self.clock.wake(self.copier_process)
                self._mark("loop", "next", began, f"batch {step}")
                self.waits.append(self.clock.now - began)
            else:
                yield from self._take("loop")
                self.waits.append(self.waited)
            yield from (self._step_on_device if self.p.device else self._step_here)(step)

    def _step_here(self, step: int) -> Process:
        began = self.clock.now
        if self.p.copy_ms > 0 and not self.p.copy_ahead:
            yield self.free, self.p.copy_ms, 0.0
            self._mark("loop", "copy", began, f"batch {step}")
            began = self.clock.now
        yield self.cpu, self.loop_times.next(), self.p.loop_cores
        self._mark("loop", "compute", began, f"step {step}")
        self._end_step()

    def _step_on_device(self, step: int) -> Process:
        began = self.clock.now
        if self.p.copy_ms > 0 and not self.p.copy_ahead:
            self._enqueue("copy", step, self.p.copy_ms)
            while not self.p.pinned and self.copies_done <= step:
                yield None
            self._mark("loop", "copy", began, f"batch {step}")
            began = self.clock.now
        if self.p.launch_ms > 0:
            yield self.cpu, self.p.launch_ms, self.p.loop_cores
            self._mark("loop", "launch", began, f"step {step}")
            began = self.clock.now
        self._enqueue("compute", step, self.loop_times.next())
        last = step + 1 == self.skip + self.count
        while len(self.ends) < step + 1 - (0 if last else self.p.run_ahead):
            yield None
        self._mark("loop", "sync", began, f"step {step}")

    def _enqueue(self, kind: str, step: int, ms: float) -> None:
        self.jobs.append((kind, step, ms))
        self.clock.wake(self.device_process)

    def _device(self) -> Process:
        self.spans["device"] = []
        while True:
            while not self.jobs:
                yield None
            kind, step, ms = self.jobs.popleft()
            began = self.clock.now
            yield self.free, ms, 0.0
            self._mark("device", kind, began, f"step {step}")
            if kind == "copy":
                self.copies_done += 1
            else:
                self._end_step()
            self.clock.wake(self.loop_process)

    def _copier(self) -> Process:
        self.spans["copy"] = []
        while True:
            while len(self.copied) >= _READY_BATCHES:
                yield None
            batch = self.taken
            yield from self._take("copy")
            began = self.clock.now
            if self.p.copy_ms > 0:
                yield self.free, self.p.copy_ms, 0.0
                self._mark("copy", "copy", began, f"batch {batch}")
            self.copied.append(batch)
            self.clock.wake(self.loop_process)

    def _mark(self, lane: str, kind: str, began: float, label: str) -> None:
        if self.clock.now > began and len(self.ends) >= self.skip:
            self.spans[lane].append((kind, began, self.clock.now, label))

    def _end_step(self) -> None:
        self.ends.append(self.clock.now)
        if len(self.ends) == self.skip:
            self.used_before = (self.cpu.used, self.storage.used)

    def _summary(self) -> Outcome:
        begin, end = self.ends[self.skip - 1], self.ends[-1]
        passed = max(end - begin, 1e-9)
        step_ms = passed / self.count
        wait_ms = sum(self.waits[self.skip :]) / self.count
        idle_ms = wait_ms
        if self.p.device:
            idle_ms = step_ms - _inside(self.spans["device"], begin, end) / self.count
        workers = [self.spans[f"worker {n}"] for n in range(self.p.workers)]
        busy = sum(_inside(spans, begin, end) for spans in workers)
        worker_busy = busy / (passed * self.p.workers) if self.p.workers else 0.0
        cores_busy = (self.cpu.used - self.used_before[0]) / (passed * self.p.cores)
        streams = self.storage.capacity
        storage_busy = (self.storage.used - self.used_before[1]) / (passed * streams)
        drawn = self.ends[min(self.skip + _DRAWN_STEPS, len(self.ends)) - 1]
        return Outcome(
            step_ms=step_ms,
            samples_per_s=self.p.batch_size * 1000.0 / step_ms,
            wait_ms=wait_ms,
            idle_ms=idle_ms,
            worker_busy=worker_busy,
            cores_busy=cores_busy,
            storage_busy=storage_busy,
            limit=_limit(
                self.p, step_ms, min(wait_ms, idle_ms), (worker_busy, cores_busy, storage_busy)
            ),
            lanes=[_lane(name, spans, begin, drawn) for name, spans in self.spans.items()],
        )


def _streams(pipeline: Pipeline) -> float:
    """How many fetches the storage serves at once without slowing down."""
    if pipeline.storage_ms <= 0:
        return math.inf
    mean = sum(pipeline.fetch_ms) / len(pipeline.fetch_ms)
    return max(1.0, mean * (1.0 - pipeline.fetch_cpu_share) / pipeline.storage_ms)


def _limit(
    pipeline: Pipeline, step_ms: float, starved_ms: float, busy: tuple[float, float, float]
) -> Limit:
    worker_busy, cores_busy, storage_busy = busy
    if starved_ms < _FELT * step_ms:
        alone_ms = sum(pipeline.loop_ms) / len(pipeline.loop_ms)
        alone_ms += 0.0 if pipeline.copy_ahead else pipeline.copy_ms + pipeline.hand_over_ms
        return "cores" if cores_busy > _FULL and step_ms > (1 + _FELT) * alone_ms else "loop"
    if pipeline.copy_ahead and pipeline.copy_ms > _FULL * step_ms:
        return "copy"
    if storage_busy > _FULL:
        return "storage"
    if cores_busy > _FULL:
        return "cores"
    return "workers" if pipeline.workers == 0 or worker_busy > _FULL else "prefetch"


def _inside(spans: list[tuple[str, float, float, str]], begin: float, end: float) -> float:
    return sum(max(0.0, min(span[2], end) - max(span[1], begin)) for span in spans)


def _lane(
    name: str, spans: list[tuple[str, float, float, str]], begin: float, end: float
) -> LaneSpans:
    kind: Literal["loop", "worker", "copy", "device"]
    kind = name if name in ("loop", "copy", "device") else "worker"  # type: ignore[assignment]
    kept = [
        (what, max(0.0, start - begin), stop - begin, label)
        for what, start, stop, label in spans
        if stop > begin and start < end
    ]
    return LaneSpans(name, kind, kept)
