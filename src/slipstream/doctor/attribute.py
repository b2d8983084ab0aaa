"""Gives every millisecond of a training step to a part of it. Pure: a recording in, numbers out.

A step is what the loop does between two batches of the loader that feeds its backward passes: the
work on one batch, and the wait for the next. Only time that the loop itself spends counts; what
workers do meanwhile is free. Where the work runs on a device the device's clock counts, and a wait
during which the device was busy is free, too.
"""

import itertools
import math
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.doctor.capture import (
    BACKWARD,
    CALL,
    CLIP,
    COLLATE,
    COPY,
    FETCH,
    FORWARD,
    GARBAGE,
    NEXT,
    OPTIMIZER,
    SAVE,
    START,
    SYNC,
    ZERO_GRAD,
    Capture,
    Loader,
    Process,
    Span,
)
from slipstream.doctor.learning import evaluation_passes

LOADING, EVALUATION, UNATTRIBUTED = "loading", "evaluation", "unattributed"
PARTS = {
    NEXT: LOADING, FETCH: LOADING, COLLATE: LOADING, START: LOADING,
    COPY: "copy", FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "optimizer",
    CLIP: "clip", ZERO_GRAD: "zero-grad", SYNC: "sync", SAVE: "checkpoint",
    GARBAGE: "garbage", CALL: "calls",
}  # fmt: skip
_MS = 1e-6
_WARM_UP = 3


@dataclass(frozen=True)
class Step:
    """One of them, in nanoseconds of the clock that counts."""

    start: int
    end: int
    host: tuple[int, int]
    parts: dict[str, int]
    spans: tuple[Span, ...]  # that begin in it, the outermost first


@dataclass(frozen=True)
class Loading:
    """How the loop's loader makes its batches. Milliseconds are those of a batch."""

    loader: Loader
    processes: tuple[Process, ...]
    batch_ms: float  # that one process takes for it
    cpu_ms: float
    delay_ms: float  # ready, without a core
    blocked_ms: float  # for storage, a network, a lock, a sleep
    stages: dict[str, float]  # what each stage takes itself
    stages_cpu: dict[str, float]
    hand_over_ms: float  # work of the loop's thread to take a batch from a worker
    samples: float  # in a batch
    read_bytes: float | None  # from storage
    read_chars: float | None


@dataclass(frozen=True)
class Epochs:
    """What happens between the last batch of an iteration and the first of the next."""

    gaps_ms: tuple[float, ...]  # whole
    starts_ms: tuple[float, ...]  # of these, workers begun and the first batch awaited
    steps: int | None  # in an epoch


@dataclass(frozen=True)
class Attribution:
    """The parts of a step. `parts` has `unattributed` and adds up to `step_ms`."""

    clock: str
    steps: tuple[Step, ...]
    step_ms: float
    parts: dict[str, float]
    loading: Loading | None
    epochs: Epochs
    by_call: dict[int, float] = field(default_factory=dict)  # milliseconds of a step, by `Call`

    def of(self, part: str) -> float:
        """Milliseconds of a step."""
        return self.parts.get(part, 0.0)

    @property
    def interval_ms(self) -> tuple[float, float]:
        """Where the mean lies, with 95 %."""
        times = [(step.end - step.start) * _MS for step in self.steps]
        if len(times) < 2:
            return self.step_ms, self.step_ms
        spread = 1.96 * statistics.stdev(times) / math.sqrt(len(times))
        return max(0.0, self.step_ms - spread), self.step_ms + spread


def attribute(capture: Capture) -> Attribution:
    """All that the rules want to know."""
    spans = sorted(capture.spans, key=lambda span: (span.start, -span.end))
    loop = loop_loader(spans)
    judged = {id(span) for span in evaluation_passes(capture, spans)}
    steps = [] if loop is None else _steps_of(spans, loop, capture.clock, judged)
    if not steps:
        # One batch for ever, or iterators of one loader by turns: the optimizer's steps are seen.
        loop, steps = None, _steps_without_loader(spans, judged)
    steps = _warm(steps)
    count = max(1, len(steps))
    step_ms = sum(step.end - step.start for step in steps) * _MS / count
    parts: defaultdict[str, float] = defaultdict(float)
    by_call: defaultdict[int, float] = defaultdict(float)
    for step in steps:
        for part, time in step.parts.items():
            parts[part] += time * _MS / count
        for span in step.spans:
            if span.kind in (SYNC, COPY, SAVE, CALL, CLIP, ZERO_GRAD) and span.detail is not None:
                start, end = _times(span, capture.clock)
                by_call[span.detail] += (end - start) * _MS / count
    loading = _loading_of(capture, loop, steps) if loop is not None else None
    if loading is not None and not loading.loader.workers:
        # The loop waits for what we do in its own process to look into batches.
        watching_ms = min(_watching_ms(loading.processes), parts[LOADING])
        parts[LOADING] -= watching_ms
        step_ms -= watching_ms
    named = {
        name: parts[name] for name in dict.fromkeys((*PARTS.values(), EVALUATION)) if parts[name]
    }
    named[UNATTRIBUTED] = step_ms - sum(named.values())
    return Attribution(
        capture.clock, tuple(steps), step_ms, named,
        loading, _epochs_of(spans, loop, capture), dict(by_call),
    )  # fmt: skip


def step_times(spans: Sequence[Span], loop: int, clock: str) -> list[float]:
    """Milliseconds of each step of the loop over this loader."""
    given = [s for s in spans if s.kind == NEXT and s.detail[0] == loop]
    return [
        (_times(after, clock)[1] - _times(before, clock)[1]) * _MS
        for before, after in itertools.pairwise(given)
        if before.detail[1] == after.detail[1] and before.detail[2] >= 0
    ]


def _times(span: Span, clock: str) -> tuple[int, int]:
    if clock == "device" and span.device is not None:
        return span.device[0], span.device[1]
    return span.start, span.end


def loop_loader(spans: Sequence[Span]) -> int | None:
    """The loader whose batches are followed by backward passes most often; without any, the one
    with the most batches.
    """
    trained: Counter[int] = Counter()
    given: Counter[int] = Counter()
    last: int | None = None
    for span in spans:
        if span.kind == NEXT and span.detail[2] >= 0:
            last = span.detail[0]
            given[span.detail[0]] += 1
        elif span.kind == BACKWARD and last is not None:
            trained[last] += 1
            last = None
    found = trained or given
    return found.most_common(1)[0][0] if found else None


def _steps_of(spans: Sequence[Span], loop: int, clock: str, judged: set[int]) -> list[Step]:
    given = [s for s in spans if s.kind == NEXT and s.detail[0] == loop]
    steps = []
    for before, after in itertools.pairwise(given):
        # The last batch of an epoch is followed by its end, which may stop workers: no step.
        if before.detail[1] == after.detail[1] and min(before.detail[2], after.detail[2]) >= 0:
            steps.append(_step_between(spans, before, after, loop, clock, judged))
    return steps


def _step_between(
    spans: Sequence[Span], before: Span, after: Span, loop: int | None, clock: str,
    judged: set[int],
) -> Step:  # fmt: skip
    inside = [s for s in _between(spans, before.end, after.end) if s is not before]
    start, end = _times(before, clock)[1], _times(after, clock)[1]
    parts = _parts_of(inside, loop, clock, judged)
    return Step(start, end, (before.end, after.end), parts, tuple(inside))


def _between(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    first = bisect_left(spans, start, key=lambda span: span.start)
    last = bisect_left(spans, end, key=lambda span: span.start)
    return list(spans[first:last])


def _parts_of(
    inside: Sequence[Span], loop: int | None, clock: str, judged: set[int]
) -> dict[str, int]:
    """Own times of the spans, by part; whatever serves another loader is evaluation, and so are
    passes that are `judged`.
    """
    parts: Counter[str] = Counter()
    stack: list[tuple[Span, str]] = []
    evaluated = _evaluations(inside, loop)
    for start, end in ((s.start, s.end) for s in evaluated):
        parts[EVALUATION] += end - start
    for span in inside:
        if any(s.start <= span.start < s.end for s in evaluated):
            continue
        start, end = _times(span, clock)
        while stack and stack[-1][0].end <= span.start:
            stack.pop()
        part = EVALUATION if id(span) in judged else PARTS[span.kind]
        parts[part] += end - start
        if stack:
            parts[stack[-1][1]] -= end - start
        stack.append((span, part))
    return {name: max(0, time) for name, time in parts.items()}


def _evaluations(inside: Sequence[Span], loop: int | None) -> list[Span]:
    """Stretches from the start of an iteration over another loader to its end."""
    found: list[Span] = []
    open_at: dict[int, Span] = {}
    for span in inside:
        if span.kind not in (START, NEXT) or span.detail[0] == loop:
            continue
        begun = open_at.setdefault(span.detail[1], Span("evaluate", span.start, span.end))
        begun.end = max(begun.end, span.end)
        if span.kind == NEXT and span.detail[2] < 0:
            found.append(open_at.pop(span.detail[1]))
    return found + list(open_at.values())


def _steps_without_loader(spans: Sequence[Span], judged: set[int]) -> list[Step]:
    """From the end of one optimizer step to the next; of several optimizers, the one with the most
    steps. Where there is none, from the end of one backward pass to the next.
    """
    ends = [span for span in spans if span.kind == OPTIMIZER]
    if not ends:
        passes = [span for span in spans if span.kind == BACKWARD]
        ends = [span for span in passes if span.detail is not None] or passes
    most = Counter(span.detail for span in ends).most_common(1)
    return [
        _step_between(spans, before, after, None, "host", judged)
        for before, after in itertools.pairwise(s for s in ends if s.detail == most[0][0])
    ]


def _warm(steps: list[Step]) -> list[Step]:
    """Without those of the beginning: compiled kernels, caches and queues fill up then."""
    if len(steps) < 2:
        return steps
    rest = steps[max(1, min(_WARM_UP, len(steps) // 3)) :]
    typical = statistics.median(step.end - step.start for step in rest)
    while len(rest) > 10 and rest[0].end - rest[0].start > 5 * typical:
        rest = rest[1:]
    return rest


def _loading_of(capture: Capture, loop: int, steps: Sequence[Step]) -> Loading:
    loader = next(entry for entry in capture.loaders if entry.id == loop)
    own = tuple(p for p in capture.processes if p.loader == loop and p.batch_count)
    batches = sum(p.batch_count for p in own)
    per = _MS / max(1, batches)
    stages: defaultdict[str, float] = defaultdict(float)
    stages_cpu: defaultdict[str, float] = defaultdict(float)
    for process in own:
        for name, times in process.stages.items():
            stages[name] += times.wall * per
            stages_cpu[name] += times.cpu * per
    busy = sum(_usual_of(p, p.busy - _watching_of(p), 0) for p in own) * per
    kept = [batch for p in own for batch in p.batches if batch[0] or p.batch_count == 1]
    cpu = sum(batch[3] for batch in kept) / max(1, len(kept))
    delay = sum(_usual_of(p, p.run_delay or 0, 1) for p in own) * per
    waits = [s for step in steps for s in step.spans if s.kind == NEXT and s.detail[0] == loop]
    hand_over = statistics.median((s.cpu or 0) * _MS for s in waits) if waits else 0.0
    return Loading(
        loader, own, busy, cpu * _MS, delay, max(0.0, busy - cpu * _MS - delay),
        dict(stages), dict(stages_cpu), hand_over if loader.workers else 0.0,
        sum(p.samples for p in own) / max(1, batches),
        _sum_of([p.read_bytes for p in own], batches),
        _sum_of([p.read_chars for p in own], batches),
    )  # fmt: skip


def _usual_of(process: Process, total: int, place: int) -> float:
    """Of all its batches, if the first had been like the others: it is a beginning."""
    first = process.facts.get("first_batch")
    if first is None or process.batch_count < 2:
        return total
    return float((total - first[place]) * process.batch_count / (process.batch_count - 1))


def _watching_of(process: Process) -> int:
    """Nanoseconds that looking into some of its batches made these take longer."""
    excess, watched, _ = process.facts.get("watching", (0, 0, 0.0))
    return int(excess * watched)


def _watching_ms(processes: Sequence[Process]) -> float:
    """The same of a step, on average."""
    known = [(p.batch_count, p.facts.get("watching", (0, 0, 0.0))) for p in processes]
    total = sum(count * excess * share for count, (excess, _, share) in known)
    return float(total * _MS / max(1, sum(count for count, _ in known)))


def _sum_of(values: Sequence[int | None], batches: int) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / max(1, batches) if known else None


def _epochs_of(spans: Sequence[Span], loop: int | None, capture: Capture) -> Epochs:
    gaps: list[float] = []
    starts: list[float] = []
    ended: Span | None = None
    begun: Span | None = None
    length = None
    for span in spans:
        if span.kind not in (START, NEXT) or loop is None or span.detail[0] != loop:
            continue
        if span.kind == START:
            begun = span
        elif span.detail[2] < 0:
            ended = span
        elif span.detail[2] == 0 and begun is not None:
            starts.append((begun.end - begun.start + span.end - span.start) * _MS)
            if ended is not None:
                gaps.append((span.end - ended.end) * _MS)
    for loader in capture.loaders:
        if loader.id == loop:
            length = loader.length
    return Epochs(tuple(gaps), tuple(starts), length)
