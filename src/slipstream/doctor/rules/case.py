"""What a rule looks at: a recording and its attribution, with the questions that many rules ask."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from slipstream.doctor.attribute import LOADING, Attribution, Loading
from slipstream.doctor.capture import Call, Capture, Line

_LEAST_SHARE = 0.03
_LEAST_MS = 0.05


@dataclass(frozen=True)
class Case:
    """One run."""

    capture: Capture
    attribution: Attribution

    @property
    def step_ms(self) -> float:
        """A step, on average."""
        return self.attribution.step_ms

    @property
    def loading(self) -> Loading | None:
        """Of the loader that feeds the loop."""
        return self.attribution.loading

    @property
    def waits_ms(self) -> float:
        """What the loop waits for batches in a step."""
        return self.attribution.of(LOADING)

    @property
    def rest_ms(self) -> float:
        """A step without that: what loading cannot be faster than."""
        return self.step_ms - self.waits_ms

    @property
    def cores(self) -> int:
        """That this process may use."""
        return int(self.capture.machine.get("usable_cores", 1))

    @property
    def on_device(self) -> bool:
        """Whether the work is done by a GPU."""
        return self.capture.clock == "device"

    def matters(self, cost_ms: float) -> bool:
        """Whether a cost is worth a finding."""
        return cost_ms >= max(_LEAST_MS, _LEAST_SHARE * self.step_ms)

    def calls(self, *what: str) -> list[Call]:
        """Calls of these kinds, the dearest first."""
        found = [call for call in self.capture.calls if call.what in what]
        return sorted(found, key=lambda call: -self.call_ms(call))

    def call_ms(self, call: Call) -> float:
        """What it takes of a step."""
        return self.attribution.by_call.get(call.id, 0.0)

    def step_if_batch_took(self, batch_ms: float, workers: int | None = None) -> float:
        """The step's time if one worker made a batch in so long: the slower of loop and loader."""
        loading = self.loading
        assert loading is not None
        count = loading.loader.workers if workers is None else workers
        if not count:
            return self.rest_ms + batch_ms
        return max(self.rest_ms + loading.hand_over_ms, batch_ms / count)

    def gain_without(self, stage_ms: float) -> float:
        """What a step would gain if a worker's batch took so much less: exposed time only."""
        loading = self.loading
        if loading is None or stage_ms <= 0:
            return 0.0
        now = self.step_if_batch_took(loading.batch_ms)
        then = self.step_if_batch_took(max(0.0, loading.batch_ms - stage_ms))
        return min(self.waits_ms, now - then)

    @cached_property
    def sampled_ms(self) -> float:
        """Milliseconds of a step that one sample of the loop's thread stands for."""
        steps = self.attribution.steps
        interval = self.capture.sample_interval
        if not steps or not interval:
            return 0.0
        return interval * 1e-6 / len(steps)

    def lines(self, wanted: Callable[[Line], bool]) -> list[tuple[str, int]]:
        """Lines of the loop's own code by how often it was found there, the most frequent first."""
        return count_lines(line for line in self.capture.lines if wanted(line))

    def reader_lines(self, wanted: Callable[[Line], bool]) -> list[tuple[str, int]]:
        """The same of the processes that read samples."""
        loading = self.loading
        if loading is None:
            return []
        lines = [line for process in loading.processes for line in process.lines]
        if not loading.loader.workers:
            lines += self.capture.lines
        return count_lines(line for line in lines if wanted(line))


def count_lines(lines: Iterable[Line]) -> list[tuple[str, int]]:
    """How often each place was found, the most frequent first."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts[line.where] += line.count
    return counts.most_common()
