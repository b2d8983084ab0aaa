"""Tries fixes that may round differently: each is kept if the losses stay and it is faster.

First the script itself, with its exact fixes, from several seeds: the band of its losses (see
band.py). Then the candidates one by one, with those kept so far and from the script's own seed.
Trials with and without it take turns, two of each, the first without being the latest there is; a
candidate that leaves the band, or is not faster at all, is undone after its first. One that looks
faster and is not yet sure has up to four of each.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.launch import Target
from slipstream.run.band import RUNS, Band, band_of, departure, losses_of
from slipstream.run.fix import Fix
from slipstream.run.outcome import FixOutcome
from slipstream.run.speed import Speed, speed_of, steady_seconds
from slipstream.run.trace import Trace
from slipstream.run.trial import Trial, try_out

FASTER = 1.01  # the low end of the interval
# These compare what they change by themselves, and so need no losses.
COMPARES_ITSELF = ("fold-batchnorm",)
# With these, samples draw other random numbers.
DRAWS_OTHERS = ("more-workers",)
# These spend the first steps, and some later ones, on getting ready.
GETS_READY = ("compile", "cudnn-benchmark")
_GETTING_READY = 10.0  # times the median of steps
_PAIRS, _MOST_PAIRS = 2, 4
_PROMISING = 1.03
_NO_TIME = "not tried: other trials took too long; --only tries it alone"
_TOO_SHORT = "too few steps to tell whether it is faster"
Say = Callable[[str], None]
TryOut = Callable[..., Trial]


@dataclass
class Proof:
    """What became of each candidate; `traces` are of trials with all that were kept."""

    outcomes: list[FixOutcome]
    traces: list[Trace] = field(default_factory=list)
    checked: str = ""

    @property
    def kept(self) -> list[str]:
        """Names of those that are to be applied."""
        return [outcome.name for outcome in self.outcomes if outcome.state == "applied"]


@dataclass(frozen=True)
class _Timed:
    trial: Trial
    seconds: float  # of the whole process

    @property
    def trace(self) -> Trace:
        assert self.trial.trace is not None
        return self.trial.trace

    @property
    def start_s(self) -> float:
        """Until the first step was over, and behind the last."""
        ends = self.trace.ends
        return self.seconds - (ends[-1] - ends[0] if ends else 0.0)


def prove(
    target: Target, seed: int, exact: tuple[str, ...], candidates: Sequence[Fix], known: Path,
    say: Say = lambda line: None, try_out: TryOut = try_out,
    is_late: Callable[[], bool] = lambda: False,
) -> Proof:  # fmt: skip
    """Try the candidates in this order; `exact` are names of fixes that are applied anyway, and
    `known` is the folder with the diagnosis. Once it `is_late`, no more are tried.
    """
    if not candidates:
        return Proof([])
    return _Prover(target, seed, exact, known, say, try_out, is_late).prove(candidates)


class _Prover:
    def __init__(
        self, target: Target, seed: int, exact: tuple[str, ...], known: Path, say: Say,
        try_out: TryOut, is_late: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._target, self._seed, self._known = target, seed, known
        self._say, self._try_out, self._is_late = say, try_out, is_late
        self._names = exact
        self._band: Band | None = None
        self._why_no_band = ""
        self._latest: _Timed | None = None
        self._most_steps = 0  # that the script itself came to

    def prove(self, candidates: Sequence[Fix]) -> Proof:
        if not self._find_band(needs_losses=any(not _compares_itself(fix) for fix in candidates)):
            return Proof([_undone(fix, self._why_no_band) for fix in candidates])
        outcomes = []
        traces: list[Trace] = []
        for fix in candidates:
            if self._band is None and not _compares_itself(fix):
                outcomes.append(_undone(fix, self._why_no_band))
                continue
            if self._is_late():
                outcomes.append(FixOutcome(fix.name, fix.kind, "skipped", _NO_TIME))
                continue
            outcome, with_it = self._judge(fix)
            if outcome.state == "applied":
                self._names = (*self._names, fix.name)
                self._latest = with_it[-1]
                traces = [timed.trace for timed in with_it]
            outcomes.append(outcome)
        checked = "there are no losses; results of evaluation were compared both ways"
        if self._band is not None:
            checked = f"losses stay in the band of {RUNS + 1} runs"
        return Proof(outcomes, traces, checked if traces else "")

    def _find_band(self, *, needs_losses: bool) -> bool:
        """Whether there is something to compare with. Sets the band, where losses make one."""
        runs: list[list[float]] = []
        for shift in range(RUNS, -1, -1) if needs_losses else (0,):
            what = f"from other seeds ({shift} to go)" if shift else "from its own seed"
            self._say(f"losses of the script {what} …")
            timed = self._try(self._names, shift)
            if not timed.trial.is_good:
                self._why_no_band = f"the script failed {what}: {_last_words(timed.trial)}"
                if not shift:
                    return False
                continue
            self._latest = timed
            runs.append(losses_of(timed.trace))
            if not runs[0]:
                break
        if self._latest is None:
            return False
        if not (needs_losses and runs[0]):
            self._why_no_band = "no backward pass was seen, so there are no losses to compare"
            return True
        self._band = band_of(runs)
        if self._band is None and not self._why_no_band:
            shortest = min(len(run) for run in runs)
            self._why_no_band = f"the script's own losses make no band ({shortest} in a trial)"
        return True

    def _judge(self, fix: Fix) -> tuple[FixOutcome, list[_Timed]]:
        assert self._latest is not None
        without, with_it = [self._latest], [self._try_with(fix)]
        while True:
            fault, speed = self._compare(fix, without, with_it)
            if fault is not None or speed is None:
                return _undone(fix, fault or _TOO_SHORT), []
            if speed.high <= FASTER:
                return _undone(fix, f"{_shown(speed)}: no gain"), []
            if len(with_it) >= _PAIRS and speed.low > FASTER:
                break
            most = _MOST_PAIRS if speed.ratio >= _PROMISING and not self._is_late() else _PAIRS
            if len(with_it) >= most:
                return _undone(fix, f"{_shown(speed)}: no gain that is sure"), []
            self._say(f"{_shown(speed)} so far; once more without {fix.name}, and with it …")
            self._latest = self._try(self._names)
            without, with_it = [*without, self._latest], [*with_it, self._try_with(fix)]
        why = _shown(speed)
        if self._band is not None:
            losses = min(len(self._band), len(with_it[-1].trace.losses))
            why += f"; {losses} losses inside the band of {RUNS + 1} runs"
        if fix.name in GETS_READY:
            why += _cost(without, with_it, speed)
        return FixOutcome(fix.name, fix.kind, "applied", why), with_it

    def _compare(
        self, fix: Fix, without: list[_Timed], with_it: list[_Timed]
    ) -> tuple[str | None, Speed | None]:
        """What is wrong with it, or how fast it is."""
        if not without[-1].trial.is_good:
            return f"the script failed without it: {_last_words(without[-1].trial)}", None
        fault = self._fault(with_it[-1].trial)
        if fault is not None:
            return fault, None
        return None, _speed(without, with_it, gets_ready=fix.name in GETS_READY)

    def _try_with(self, fix: Fix) -> _Timed:
        self._say(f"trying {fix.name} …")
        return self._try((*self._names, fix.name))

    def _fault(self, trial: Trial) -> str | None:
        if not trial.is_good or trial.trace is None:
            return f"the script failed with it: {_last_words(trial)}"
        if self._band is None:
            return None
        # Where time ended it, getting ready may have taken the rest.
        is_cut = trial.trace.ended == "window" and len(trial.trace.ends) < self._most_steps
        return departure(self._band, losses_of(trial.trace), is_cut=is_cut)

    def _try(self, names: tuple[str, ...], shift: int = 0) -> _Timed:
        began = time.perf_counter()
        # Scripts that set no seed have theirs shifted, too.
        trial = self._try_out(
            self._target, seed=self._seed + shift, fixes=names, known=self._known, shift=shift
        )
        if names == self._names and trial.trace is not None:
            self._most_steps = max(self._most_steps, len(trial.trace.ends))
        return _Timed(trial, time.perf_counter() - began)


def _compares_itself(fix: Fix) -> bool:
    return fix.name in COMPARES_ITSELF


def _undone(fix: Fix, why: str) -> FixOutcome:
    return FixOutcome(fix.name, fix.kind, "undone", why)


def _last_words(trial: Trial) -> str:
    return trial.said.strip().rpartition("\n")[2] or "it said nothing"


def _shown(speed: Speed) -> str:
    return f"{speed.ratio:.2f} x ({speed.low:.2f} to {speed.high:.2f})"


def _speed(without: list[_Timed], with_it: list[_Timed], *, gets_ready: bool) -> Speed | None:
    before, after = (
        [second for timed in trials for second in _steps(timed.trace, gets_ready=gets_ready)]
        for trials in (without, with_it)
    )
    return speed_of(before, after)


def _steps(trace: Trace, *, gets_ready: bool) -> list[float]:
    steps = steady_seconds(trace)
    if not gets_ready or not steps:
        return steps
    most = _GETTING_READY * statistics.median(steps)
    return [second for second in steps if second <= most]


def _cost(without: list[_Timed], with_it: list[_Timed], speed: Speed) -> str:
    """How long it takes to get ready, and when that has paid off."""
    late = _getting_ready(with_it) - _getting_ready(without)
    if late < 1.0:
        return ""
    steps = late / (1 / speed.before - 1 / speed.after)
    return f"; {late:.0f} s to get ready, which pays off after {steps:,.0f} steps"


def _getting_ready(trials: list[_Timed]) -> float:
    """What a run took before its first step, and its steps beyond what later ones take."""
    return statistics.fmean(timed.start_s + _beyond_steady(timed.trace) for timed in trials)


def _beyond_steady(trace: Trace) -> float:
    steps, steady = trace.step_seconds(), _steps(trace, gets_ready=True)
    return sum(steps) - len(steps) * statistics.fmean(steady) if steady else sum(steps)
