"""Time of a step that the script's own lines take, outside of everything that is known by name."""

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass

from slipstream.doctor.attribute import UNATTRIBUTED, Step
from slipstream.doctor.capture import (
    BACKWARD,
    FETCH,
    FORWARD,
    NEXT,
    OPTIMIZER,
    START,
    ZERO_GRAD,
    Line,
    Span,
)
from slipstream.doctor.rules.case import Case

_MAIN = (NEXT, FORWARD, BACKWARD, OPTIMIZER)
_PARTS = (*_MAIN, ZERO_GRAD, FETCH)
_SURE = {"arrays", "sleeps", "python", "writes", "state", "moves"}
_BY_CHANCE = 0.05  # of a line's samples: taken while a part began or ended beside it
_ARRAYS = ("numpy", "scipy", "sklearn", "pandas", "PIL", "cv2", "skimage", "matplotlib")


@dataclass(frozen=True)
class OwnLine:
    """A line, and the milliseconds of a step that it takes. `for_model`: it stands between a
    forward and its backward pass, where torch's functions are part of the model.
    """

    where: str
    ms: float
    samples: int
    does: frozenset[str]
    over_parameters: str | None  # the loop over a model's parameters that it is part of
    for_model: bool
    is_way_in: bool = False  # a known part of the step is called on the same line
    outer: str = ""  # the line of the loop that led there

    @property
    def is_surely_own(self) -> bool:
        """Whether it cannot be a part of the model, nor the way into one of its parts."""
        if self.is_way_in:
            return bool(self.does & {"arrays", "sleeps"})
        if not self.for_model:
            return True
        return bool(self.does) and self.does <= _SURE


def own_lines(case: Case) -> list[OwnLine]:
    """The dearest first. What the spans of a step leave over is known to the nanosecond; samples
    only share it out among the lines.
    """
    capture = case.capture
    counts: Counter[tuple[str, str, bool, bool]] = Counter()
    steps = case.attribution.steps
    starts = [step.host[0] for step in steps]
    for at, number in capture.samples:
        if number >= len(capture.lines):
            continue  # a line of the long tail that was not kept
        line = capture.lines[number]
        found = bisect_right(starts, at) - 1
        if line.stage or found < 0 or at >= steps[found].host[1]:
            continue
        if not _is_evaluation(steps[found], at, _loop_of(case)):
            for_model = _is_for_model(steps[found], at)
            counts[line.where, line.outer, for_model, _is_arrays(line)] += 1
    ways_in = _ways_in(case)
    total = sum(counts.values())
    per_sample = case.attribution.of(UNATTRIBUTED) / total if total else 0.0
    lines = []
    for (where, outer, for_model, in_arrays), count in counts.most_common():
        known = capture.statements.get(where, {})
        does = {"arrays"} if in_arrays else set(known.get("does", ()))
        lines.append(
            OwnLine(
                where, count * per_sample, count, frozenset(does),
                known.get("over_parameters"), for_model,
                where in ways_in, outer,
            )
        )  # fmt: skip
    return lines


def _ways_in(case: Case) -> set[str]:
    """Lines on which a known part of the step is called."""
    capture = case.capture
    models = capture.model.get("models", [])
    whole, in_parts = Counter[str](), Counter[str]()
    for line in capture.lines:
        whole[line.where] += line.count
        in_parts[line.where] += line.count if line.stage in _PARTS else 0
    places = {where for where, count in in_parts.items() if count > _BY_CHANCE * whole[where]}
    places |= {optimizer.get("where") or "" for optimizer in capture.optimizers}
    places |= {mode["where"] or "" for model in models for mode in model.get("modes", {}).values()}
    return places | {
        call.where or ""
        for call in capture.calls
        if call.what.startswith(("backward", "zero_grad"))
    }


def _loop_of(case: Case) -> int | None:
    return case.loading.loader.id if case.loading is not None else None


def _is_arrays(line: Line) -> bool:
    return line.leaf.partition(".")[0] in _ARRAYS


def _is_evaluation(step: Step, at: int, loop: int | None) -> bool:
    """Between the batches of another loader."""
    others = [s for s in step.spans if s.kind in (NEXT, START) and s.detail[0] != loop]
    return bool(others) and others[0].start <= at < others[-1].end


def _is_for_model(step: Step, at: int) -> bool:
    main = [span for span in step.spans if span.kind in _MAIN]
    if not any(span.kind == BACKWARD for span in main):
        return False
    before: Span | None = None
    for span in main:
        if span.start > at:
            return span.kind == BACKWARD or (before is not None and before.kind == FORWARD)
        before = span
    return False


def places(lines: list[OwnLine]) -> list[str]:
    """Lines of the loop, the dearest first; then lines of functions that it calls."""
    loop: defaultdict[str, float] = defaultdict(float)
    inner: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        loop[line.over_parameters or line.outer or line.where] += line.ms
        inner[line.where] += line.ms
    found = sorted(loop, key=lambda place: -loop[place])
    return [*found, *sorted((p for p in inner if p not in loop), key=lambda p: -inner[p])]
