"""What a rule looks at: a recording and its attribution, with the questions that many rules ask."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from slipstream.doctor.attribute import LOADING, Attribution, Loading
from slipstream.doctor.capture import NEXT, Call, Capture, Line
from slipstream.doctor.measured import pipeline_of
from slipstream.doctor.pipeline import Pipeline
from slipstream.doctor.simulate import simulate

_LEAST_SHARE = 0.03
_LEAST_MS = 0.05
_MOST_DELAY = 0.2


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

    @cached_property
    def batches_ms(self) -> list[float]:
        """What each batch took its worker, in the order in which the loop wants them."""
        loading = self.loading
        if loading is None:
            return []
        lanes = sorted(loading.processes, key=lambda process: process.began)
        made = sorted(
            (batch[0], lane, (batch[2] - batch[1]) * 1e-6)
            for lane, process in enumerate(lanes)
            for batch in process.batches
        )
        return [took for _, _, took in made]

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """What the simulation starts from; None where nothing was loaded."""
        return pipeline_of(self.capture, self.attribution, as_it_was=True)

    @cached_property
    def _simulated(self) -> dict[Pipeline, float]:
        return {}

    def step_if(
        self, share: float = 1.0, *, workers: int | None = None, prefetch: int | None = None,
        in_order: bool | None = None,
    ) -> float:  # fmt: skip
        """The step's time, simulated, if a batch took this share of what it takes now, and with
        other settings of the loader.
        """
        now = self.pipeline
        assert now is not None
        then = replace(
            now,
            workers=now.workers if workers is None else workers,
            prefetch=prefetch or now.prefetch,
            in_order=now.in_order if in_order is None else in_order,
            fetch_ms=tuple(share * ms for ms in now.fetch_ms),
        )
        if then not in self._simulated:
            self._simulated[then] = simulate(then).step_ms
        return self._simulated[then]

    def gain_if(self, then_ms: float) -> float:
        """What a step gains if it takes so long in the simulation. Where the loop waits for longer
        than the simulation says, the rest of that is not the loader's: it is not counted.
        """
        if self.pipeline is None:
            return 0.0
        now = self.step_if()
        exposed = now - self.rest_ms
        if exposed <= 0:
            return 0.0
        return max(0.0, now - then_ms) * min(1.0, self.waits_ms / exposed)

    def gain_without(self, stage_ms: float) -> float:
        """What a step would gain if a worker's batch took so much less: exposed time only."""
        loading = self.loading
        if loading is None or self.pipeline is None or stage_ms <= 0:
            return 0.0
        if not loading.loader.workers:
            return min(self.waits_ms, stage_ms)
        share = min(1.0, stage_ms / loading.batch_ms)
        gain = self.gain_if(self.step_if(1.0 - share))
        # Workers that compute keep the loop from its core, too; so may others, hence the bound.
        computing = min(1.0, (loading.cpu_ms + loading.delay_ms) / loading.batch_ms)
        return gain + min(share * computing * self.loop_delay_ms, _MOST_DELAY * gain)

    @cached_property
    def loop_delay_ms(self) -> float:
        """Milliseconds of a step in which the loop was ready to go on and had no core."""
        loading = self.loading
        if loading is None:
            return 0.0
        waits = [
            span
            for step in self.attribution.steps
            for span in step.spans
            if span.kind == NEXT and span.detail[0] == loading.loader.id and len(span.detail) > 4
        ]
        counts = [span.detail[4] for span in waits if span.detail[4] is not None]
        if len(counts) < 2:
            return 0.0
        return float(max(counts) - min(counts)) * 1e-6 / (len(counts) - 1)

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
