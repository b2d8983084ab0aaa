"""A step that is tried: on copies, from a start to which it can be put back."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch

from slipstream.memory import Peak, leak_of, peak_of
from slipstream.timing import Ratio, least_gain, ratio_of, time_in_turns
from slipstream.train.choices import Choices
from slipstream.train.snapshot import Snapshot
from slipstream.train.subject import Subject

_SEGMENTS = 3
_LOOKS = 5
_LOOKING_S = 1.0
_NEAR, _FAR = 1.5, 10.0  # times slower: no need to look again

_Found = TypeVar("_Found")


class Trial:
    """`build_s`: seconds until the first step was over, less those of another."""

    def __init__(self, subject: Subject, choices: Choices) -> None:
        self.subject, self.choices = subject, choices
        self.step = subject.build(choices)
        self.start = Snapshot(self.step)
        self._turn = 0
        first = self._timed(self.call)
        self.step_s = self._typical_s()
        self.build_s = max(0.0, first - self.step_s)
        self.start.restore()

    def call(self) -> torch.Tensor:
        """One step on the next batch."""
        batches = self.subject.usual
        self._turn += 1
        return self.step(batches[self._turn % len(batches)])

    def peak(self) -> Peak:
        """Memory that a step takes, gradients included; the model is put back."""
        return self._after_one(peak_of)

    def leak(self) -> int | None:
        """Bytes that every step keeps; the model is put back."""
        return self._after_one(leak_of)

    def _after_one(self, measure: Callable[..., _Found]) -> _Found:
        """The optimizer has its state then; gradients are gone, as nobody has noted their size."""
        self.call()
        for parameter in self.step.parameters:
            parameter.grad = None
        try:
            return measure(self.call, self.subject.device)
        finally:
            self.start.restore()

    def phases_s(self) -> tuple[float, float]:
        """Forward and backward, and the update: the medians of a few; the model is put back."""
        halves: tuple[list[float], list[float]] = ([], [])
        for number in range(_LOOKS):
            batch = self.subject.usual[number % len(self.subject.usual)]
            halves[0].append(self._timed(partial(self.step.backward, batch)))
            halves[1].append(self._timed(self.step.update))
        self.start.restore()
        return statistics.median(halves[0]), statistics.median(halves[1])

    def times_slower_than(self, base: "Trial") -> float:
        """At least, by a quick look: single steps, one after the other."""
        least = math.inf
        for _ in range(_LOOKS):
            own_s, base_s = self._timed(self.call), base._timed(base.call)
            least = min(least, own_s / base_s)
            if not _NEAR < own_s / base_s < _FAR:
                break
        self.start.restore()
        base.start.restore()
        return least

    def _typical_s(self) -> float:
        """The fastest of a few: what else runs on the machine makes single ones slow."""
        found = [self._timed(self.call)]
        while len(found) < _LOOKS and sum(found) < _LOOKING_S:
            found.append(self._timed(self.call))
        return min(found)

    def _timed(self, call: Callable[[], object]) -> float:
        wait = self.subject.wait
        start = time.perf_counter()
        call()
        if wait is not None:
            wait()
        return time.perf_counter() - start


class Times:
    """Seconds of steps of several trials, taken in turns from the same start. The first one runs
    twice in every round: what differs between the two is noise.
    """

    def __init__(self, trials: Mapping[str, Trial], seconds: float) -> None:
        self._trials = dict(trials)
        self._first = next(iter(trials))
        self._taken: dict[str, list[float]] = {name: [] for name in (*trials, "again")}
        self._segments = 0
        self.more(seconds)

    def more(self, seconds: float) -> None:
        """Take some more; ends early where none can be faster."""
        trials, own = self._trials, self._trials[self._first]
        calls: dict[str, Any] = {name: trial.call for name, trial in trials.items()}
        rounds_s = 8 * sum(trial.step_s for trial in (*trials.values(), own))
        segments = max(1, min(_SEGMENTS, int(seconds / max(rounds_s, 1e-9))))
        for _ in range(segments):
            self._segments += 1
            for trial in trials.values():
                trial.start.restore()
            taken = time_in_turns(
                {**calls, "again": own.call},
                seconds=seconds / segments, wait=own.subject.wait, seed=self._segments,
            )  # fmt: skip
            for name, found in taken.items():
                self._taken[name] += found
            if all(self.speed(name).high < 1 for name in trials if name != self._first):
                break  # only ever to give up: who looks until something is faster will find it
        for trial in trials.values():
            trial.start.restore()

    def speed(self, name: str) -> Ratio:
        """How many times faster than the first."""
        return ratio_of(self._taken[self._first], self._taken[name])

    @property
    def least(self) -> float:
        """How many times faster one has to be."""
        return least_gain(self.speed("again"))

    def step_s(self, name: str) -> float:
        """The median of the first; of another, that at its speed, so that both say the same."""
        seconds = statistics.median(self._taken[self._first])
        return seconds if name == self._first else seconds / self.speed(name).value
