"""A recording from its beginning to its end."""

import dataclasses
import datetime
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from slipstream.by_hand import StepsByHand
from slipstream.doctor.attribute import loop_loader
from slipstream.doctor.capture import (
    COLLATE,
    FETCH,
    NEXT,
    Capture,
    Loader,
    Process,
    Span,
    capture_from,
)
from slipstream.doctor.probe import probe_storage
from slipstream.doctor.record import counters, loaders
from slipstream.doctor.record.folder import RecordingFolder
from slipstream.doctor.record.ladder import Ladder
from slipstream.doctor.record.loaders import LoaderHooks
from slipstream.doctor.record.loop import LoopHooks
from slipstream.doctor.record.machine import cuda_is_in_use, describe_machine, describe_settings
from slipstream.doctor.record.mailbox import read_mailbox
from slipstream.doctor.record.others import Others
from slipstream.doctor.record.places import is_foreign
from slipstream.doctor.record.reading import FOLDER_VARIABLE, OpenCount
from slipstream.doctor.record.rungs import Rungs
from slipstream.doctor.record.statements import describe_statements
from slipstream.doctor.record.threads import LoopSampler, LoopStages, LoopTrace, ThreadHooks
from slipstream.doctor.record.trace import DeviceClock, span_cost
from slipstream.errors import UsageError
from slipstream.launch import WindowEnded
from slipstream.patches import Patches

_SAMPLE_S = 0.01
_WARM_UP = 5  # batches
_MEMORY_NS = 500_000_000
_STEPS_WITHOUT_BATCH = 50
_BEFORE_STEP = 4  # times the window
_MOST_ENDS = 100


class Session:
    """Hooks, from `start` to `stop`, of the thread that trains. One at a time in a process."""

    def __init__(
        self, script: str, *, steps: int | None, seconds: float | None, least_seconds: float = 0.0,
        examines: bool = False, light: bool = False,
    ) -> None:  # fmt: skip
        """The window ends after so many steps, but not before `least_seconds`, or so long after the
        first; None: never. It `examines` by climbing the ladder behind it; a `light` one leaves
        workers alone and does not look at lines.
        """
        if loaders.active is not None:
            raise UsageError("A recording is under way in this process already.")
        self.trace = LoopTrace()
        self.log = LoopStages()
        self.patches = Patches()
        self._script = script
        self._steps, self._seconds = steps, seconds
        self._least_seconds = least_seconds
        self._loader_hooks = LoaderHooks(self)
        self._loop_hooks = LoopHooks(self)
        self.threads = ThreadHooks(self)
        self._batches: dict[int, int] = {}
        self._optimizer_steps: Counter[int] = Counter()  # of each
        self._steps_without_batch = self._ends = 0
        self._first: int | None = None
        self._first_cpu = self._latest = self._latest_cpu = self._first_sampled = 0
        self._first_own = 0
        self._others: Others | None = None
        self._used: tuple[dict[str, float] | None, float | None] | None = None
        self._window_end: int | None = None
        self._memory: list[list[int]] = []
        self._memory_at = 0
        self._sampler = LoopSampler(_SAMPLE_S, self._stage, lambda: self.trace.loop_code)
        self._recording_folder = RecordingFolder()
        self._folder = self._recording_folder.path
        self.own = Process(os.getpid(), -1, None)
        self.examines = examines
        self.on_batch: Callable[[], None] | None = None  # told when the loop got a batch
        self.is_light = light
        self._opens: OpenCount | None = None
        self.rungs = Rungs(self._folder, make=True)
        self.ladder: Ladder | None = None
        self._storage: list[dict[str, Any]] = []
        self._recorded: list[Span] | None = None

    def start(self) -> None:
        """Install the hooks."""
        loaders.active = self
        if not self.is_light:
            os.environ[FOLDER_VARIABLE] = str(self._folder)
        self._began_at = datetime.datetime.now(datetime.timezone.utc)
        self._began = time.perf_counter_ns()
        self._loader_hooks.install()
        self._loop_hooks.install()
        self.threads.install()
        if not self.is_light:
            self._opens = OpenCount(self.own, self.rungs)
            self._sampler.start()
        self.trace.is_on = True

    def pause(self) -> None:
        """Leave the hooks where they are, and let them do nothing."""
        self.trace.is_on = self.log.is_on = False
        self._sampler.pause()

    def resume(self) -> None:
        """The end of `pause`."""
        self.trace.is_on = self.log.is_on = True
        if not self.is_light:
            self._sampler.resume()

    def forget(self) -> None:
        """In a forked child: take the hooks away, leave the recording to the parent."""
        self.trace.is_on = self.log.is_on = False
        if self._opens is not None:
            self._opens.is_on = False
        self._loop_hooks.remove()
        self.patches.undo()
        self._loader_hooks.hooks.patches.undo()

    def stop(self, ended: str = "window", *, replays: bool = True) -> Capture:
        """Take the hooks away; all that was recorded. What `replays` steps must not run beside the
        loop.
        """
        length = (self._window_end or time.perf_counter_ns()) - self._began
        if self.ladder is not None:
            self.ladder.end()
        self.forget()
        loaders.active = None
        if not self.is_light:
            self._sampler.stop()
        os.environ.pop(FOLDER_VARIABLE, None)
        spans = self.trace.spans if self._recorded is None else self._recorded
        spans = [span for span in spans if span.start >= self.trace.since]
        if self.trace.device_clock is not None:
            climbed = [] if self.ladder is None else self.ladder.spans
            self.trace.device_clock.read(spans + climbed)
        # Of the run: replays change counters and caches.
        settings, memory = describe_settings(), self._memory
        settings["allocator"] = self._loop_hooks.allocator
        settings["used"], settings["stopped"] = self._cores_used()
        replays = replays and ended != "error" and not self.is_light
        replayed = self._loop_hooks.replay() if replays else []
        processes = self._own_processes() + self._workers()
        self._recording_folder.remove()
        capture = Capture(
            script=self._script,
            machine=describe_machine(),
            began_at=self._began_at.isoformat(timespec="seconds"),
            length=length,
            ended=ended,
            clock=self.clock,
            spans=spans,
            loaders=self._loader_hooks.loaders,
            processes=processes,
            calls=self.trace.calls,
            lines=self._sampler.lines(),
            sample_interval=int(_SAMPLE_S * 1e9),
            samples=self._sampler.samples(),
            optimizers=[{"id": key, **facts} for key, facts in self._loop_hooks.optimizers.items()],
            model={"models": self._loop_hooks.models.found},
            settings=settings,
            memory=memory,
            replays=replayed,
            ladder=[] if self.ladder is None else self.ladder.rungs(),
            storage=self._storage,
        )
        capture.settings["loop_cores"] = self._loop_cores(spans)
        capture.overhead = self._overhead(spans, length)
        capture.statements = describe_statements(
            {line.where for line in capture.lines} | {call.where or "" for call in capture.calls}
        )
        _rebase(capture, self._began)
        return capture

    @property
    def loaders(self) -> list[Loader]:
        """Those that were iterated over so far."""
        return self._loader_hooks.loaders

    @property
    def is_recording(self) -> bool:
        """From `start` to `stop`."""
        return loaders.active is self

    @property
    def has_begun(self) -> bool:
        """Whether the loop got a batch, or stepped."""
        return self._first is not None

    @property
    def has_ended(self) -> bool:
        """Whether the loop was ended behind its window."""
        return self._ends > 0

    @property
    def batches_seen(self) -> int:
        """Of the thread that is watched, by any loader."""
        return sum(self._batches.values())

    @property
    def steps_seen(self) -> int:
        """Of the thread that is watched."""
        return max(self._optimizer_steps.values(), default=0)

    @property
    def has_workers(self) -> bool:
        """Whether loaders have started any."""
        return bool(self._loader_hooks.worker_pids)

    # Of the hooks

    def follow(self) -> None:
        """Watch the thread that calls: what others did is forgotten."""
        self.trace.follow()
        self.log.follow()
        self._sampler.follow()
        self._batches.clear()
        self._optimizer_steps.clear()
        self._steps_without_batch = 0
        self._loop_hooks.by_hand = StepsByHand()
        self._first = None

    def before_batch(self) -> None:
        """The loop asks for a batch. Raises `WindowEnded`."""
        if self.ladder is not None:
            if self.ladder.is_over():
                self.end()
        elif self._is_over():
            self._window_end = time.perf_counter_ns()
            self._cores_used()  # in the window, and not behind it
            loop = loop_loader(self.trace.spans)
            if self.examines and loop is not None:
                self._climb(loop)
            else:
                self.end()

    def _climb(self, loop: int) -> None:
        facts = self._loader_hooks.loaders[loop]
        self._recorded = self.trace.spans
        ahead = facts.workers * (facts.prefetch or 2)
        self.ladder = Ladder(self, self.rungs, loop, ahead)
        self.ladder.begin()

    @property
    def clock(self) -> str:
        """That of the device once tensors went there."""
        return "host" if self.trace.device_clock is None else "device"

    def before_step(self) -> None:
        """The loop's optimizer, or what stands for it, begins a step: for loops without a loader,
        or on the batches that they once took from it. Raises `WindowEnded`.
        """
        asks_no_more = self._steps_without_batch > _STEPS_WITHOUT_BATCH
        if (not self._batches or asks_no_more) and self.ladder is None and self._is_over():
            self.end()

    def end(self) -> None:
        """Raises `WindowEnded`, in whichever thread it is called."""
        self._ends += 1
        if self._ends > _MOST_ENDS:
            # The script catches even what is no error, and asks again: it goes on, unwatched.
            self.pause()
            return
        self._loop_hooks.models.hold()
        if self.examines and self._ends == 1:
            self._try_storage()
        if self._ends == 1:
            self.threads.watch_the_rest()
        raise WindowEnded

    def _try_storage(self) -> None:
        """How fast the files that were read can be read; now, as the script may delete them."""
        readers = [self.own, *self._workers()]
        files = sorted({file for reader in readers for file in reader.facts.get("files", ())})
        paths = [Path(file) for file in files if not is_foreign(file) and Path(file).is_file()]
        if paths:
            self._storage.append(dataclasses.asdict(probe_storage(paths)))
            self._storage[-1]["folder"] = str(paths[0].parent)

    def after_batch(self, loader: int) -> None:
        """The loop got one."""
        if not self.trace.is_loops_thread:
            return  # it has moved on meanwhile
        now = time.perf_counter_ns()
        if self._first is None:
            self._first, self._first_cpu = now, time.process_time_ns()
            self._begin_to_count()
        self._latest, self._latest_cpu = now, time.process_time_ns()
        self._steps_without_batch = 0
        self._loop_hooks.by_hand.saw_batch()
        self._batches[loader] = self._batches.get(loader, 0) + 1
        if self.batches_seen == 2:
            self._first_own = self._loaders_own()  # the first one was looked at closely, once
        if now - self._memory_at > _MEMORY_NS:
            self._memory_at = now
            self._measure_memory(now)
        if self.on_batch is not None:
            self.on_batch()

    def after_step(self, optimizer: int) -> None:
        """The optimizer with this number has ended a step, or the backward pass of this call where
        there is none.
        """
        if self._first is None:
            self._first = time.perf_counter_ns()
            self._begin_to_count()
        self._optimizer_steps[optimizer] += 1
        self._steps_without_batch += 1

    def _begin_to_count(self) -> None:
        self._first_sampled = self._sampler.cpu_ns
        if not self.is_light:
            self._others = Others()

    def _cores_used(self) -> tuple[dict[str, float] | None, float | None]:
        """And those stopped by a quota: from the first batch to when this is asked for first."""
        if self._used is None:
            known = self._others
            self._used = (None, None) if known is None else (known.facts(), known.stopped())
        return self._used

    def saw_device(self) -> None:
        """Tensors went to a device: time is measured there from now on."""
        if self.trace.device_clock is None:
            self.trace.device_clock = DeviceClock()

    def _is_over(self) -> bool:
        if self._first is None:
            return False
        seen = max((*self._batches.values(), self.steps_seen))
        seconds = (time.perf_counter_ns() - self._first) * 1e-9
        is_long = self._seconds is not None and seconds >= self._seconds
        is_enough = self._steps is not None and seen >= self._steps + _WARM_UP
        if self._seconds is not None and self._loop_hooks.is_before_first_step:
            # A window without what follows would not have the whole of the loop.
            is_long = seconds >= _BEFORE_STEP * self._seconds
            is_enough = self._steps is not None and seen >= _BEFORE_STEP * self._steps
        return is_long or (is_enough and seconds >= self._least_seconds)

    def _measure_memory(self, now: int) -> None:
        resident = counters.resident()
        if resident is None:
            return
        on_device = 0
        if cuda_is_in_use():
            on_device = int(torch.cuda.memory_allocated())
        self._memory.append([now, resident, on_device])

    def _loop_cores(self, spans: list[Span]) -> float:
        """Cores that this process kept busy while its loop did not wait for batches."""
        if self._first is None or self._latest == self._first:
            return 1.0
        waits = [s for s in spans if s.kind == NEXT and self._first <= s.start < self._latest]
        wall = self._latest - self._first - sum(s.end - s.start for s in waits)
        cpu = self._latest_cpu - self._first_cpu - sum(s.cpu or 0 for s in waits)
        return max(0.1, cpu / max(1, wall))

    def _overhead(self, spans: list[Span], length: int) -> dict[str, Any]:
        """What the hooks of the loop's process took of its time: those of batches timed, others
        counted at the price of one, and the time of the thread that looks at lines.
        """
        if self._first is None:
            return {}
        spans_seen = sum(span.start >= self._first for span in spans)
        cost = spans_seen * span_cost() + self.log.calls * self.log.call_ns
        cost += self._sampler.cpu_ns - self._first_sampled + self._loaders_own() - self._first_own
        length -= self._first - self._began
        return {"share": cost / max(1, length), "how": "hooks timed and counted"}

    def _loaders_own(self) -> int:
        hooks = self._loader_hooks
        return hooks.own_ns + sum(reading.own_ns for reading in hooks.readings)

    def _own_processes(self) -> list[Process]:
        return [reading.finished() for reading in self._loader_hooks.readings]

    def _stage(self) -> str:
        """What the loop is at; where it reads its own samples, the stage of that."""
        current = self.trace.current
        return self.log.current or current if current in (FETCH, COLLATE) else current

    def _workers(self) -> list[Process]:
        found = []
        for path in sorted(self._folder.glob("worker-*.box")):
            text = read_mailbox(path)
            if text is None:
                continue
            values: dict[str, Any] = json.loads(text)
            shell = {"schema": Capture.schema, "script": "", "machine": {}, "began_at": ""}
            process = capture_from({**shell, "processes": [values]}).processes[0]
            process.loader = self._loader_hooks.worker_pids.get(process.pid, -1)
            found.append(process)
        return found


def _rebase(capture: Capture, began: int) -> None:
    """Times since the beginning in place of the machine's."""
    for span in capture.spans:
        span.start -= began
        span.end -= began
    for process in capture.processes:
        process.began -= began
        if process.ready is not None:
            process.ready -= began
        for batch in process.batches:
            batch[1] -= began
            batch[2] -= began
        for entry in process.memory:
            entry[0] -= began
    for compilation in capture.settings.get("compilations", ()):
        compilation["start"] -= began
    for entry in (*capture.memory, *capture.samples):
        entry[0] -= began
