"""All that is tried before a script runs: its diagnosis, and the fixes that pass."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from slipstream.doctor.capture import BACKWARD, NEXT, OPTIMIZER, Capture
from slipstream.doctor.crowd import crowded
from slipstream.doctor.record.others import Others
from slipstream.errors import UsageError
from slipstream.launch import Target
from slipstream.run.check import Reference
from slipstream.run.choose import Wish, choose
from slipstream.run.early import take_over
from slipstream.run.fix import Fix, Situation
from slipstream.run.fixes import kept_memory
from slipstream.run.numeric import DRAWS_OTHERS, Proof, prove
from slipstream.run.outcome import ROUGH, FixOutcome
from slipstream.run.patience import Patience
from slipstream.run.ranks import Ranks
from slipstream.run.situation import diagnosed
from slipstream.run.speed import (
    Speed,
    across_processes,
    compare_speed,
    speed_of,
    steady_seconds,
)
from slipstream.run.trace import Trace, trace_of
from slipstream.run.trial import SECONDS, STEPS, Trial, try_out
from slipstream.run.tried import Tried

_DIAGNOSED_STEPS = 40
_FEWEST_STEPS = 8
_ENOUGH_S, _MOST_TIMES = 5.0, 4  # of steps: quick ones are told from noise by more of them
_SLOWER, _NO_FASTER = 0.99, 1.01  # at its median, and at most
_UNSURE = 0.98  # at its median: looked at once more, as chance may hide that it is slower
_PROMISING = 1.1  # at its median: worth another pair of trials where one is not sure
_MOST_PAIRS, _PAIRS_TO_BE_SURE = 3, 2  # of trials without and with fixes
_PAIRS_OF_ALL = 2  # the same, at last, where some of them are numeric
_MOST_RUNS = 3  # of the script as it is, where these differ
# Seconds, or times the longest trial, after which it is no longer looked for the fix that is at
# fault, and after which no numeric fix is tried.
_EXACT_PATIENCE, _NUMERIC_PATIENCE = (120.0, 8), (300.0, 20)
_NO_TIME = "which of them it is was not looked for: trials took too long"
_DOES_MORE = {
    "foreach-optimizer": "fused-optimizer",
    "native-optimizer": "fused-optimizer",
}
_NO_STEP = "no training step was seen, so nothing is applied"
Say = Callable[[str], None]


class TrialFailed(UsageError):
    """The script, as it is, did not get through a trial."""


class Trials:
    """Of one script, by all of its ranks together: each takes the same decisions."""

    def __init__(
        self, target: Target, wish: Wish, seed: int, place: Path, say: Say, ranks: Ranks
    ) -> None:
        """`place` gets the diagnosis; `seed` is of this rank."""
        self._target, self._wish, self._place = target, wish, place
        self._say, self._ranks = say, ranks
        self._tried = Tried(seed, rank=ranks.rank)
        self._steps = STEPS
        self._runs: list[Trial] = []  # of the script as it is
        self._others = Others()
        self._patience = Patience(*_EXACT_PATIENCE)

    def run(self) -> tuple[Tried, Situation]:
        """Returns what is to be applied, and what the fixes were chosen by."""
        situation = self._diagnose()
        if not self._any(_trains(situation.capture)):
            self._tried.checked = _NO_STEP
            self._say(_NO_STEP)
            return self._tried, situation
        taken = self._choose(situation)
        exact = self._proved([fix for fix in taken if fix.kind == "E"])
        numeric = self._proved_in_band([fix for fix in taken if fix.kind == "N"], exact)
        exact = self._without_those_that_do_less(exact, {fix.name for fix in numeric})
        tried = self._tried
        tried.names = [fix.name for fix in (*exact, *numeric)]
        for outcome in tried.fixes:
            if outcome.name in tried.names:
                outcome.state = "applied"
        return tried, situation

    def _diagnose(self) -> Situation:
        self._say("looking at the script …")
        trial = self._look()
        if self._any(bool(trial.early)):
            take_over(trial.early)
            trial = self._look()
        if not trial.is_good or trial.capture is None:
            raise TrialFailed(
                f"{self._target} did not get through its first steps in a trial, so there is"
                f" nothing to compare with. Its last words:\n{trial.said.strip()}"
            )
        situation = diagnosed(trial.capture, self._place)
        step_s = 1e-3 * (situation.report.get("step_ms") or 0.0)
        steps = _enough_steps(step_s)
        if self._ranks.world > 1 and step_s:
            # By steps alone: they have to stop at the same.
            steps = min(steps, max(_FEWEST_STEPS, int(SECONDS / step_s)))
        self._steps = self._ranks.first(steps)
        return situation

    def _look(self) -> Trial:
        return try_out(
            self._target, seed=self._tried.seed, diagnose=True, steps=_DIAGNOSED_STEPS,
            ranks=self._ranks,
        )  # fmt: skip

    def _choose(self, situation: Situation) -> list[Fix]:
        """Those that all ranks take."""
        chosen = choose(situation, self._wish)
        said = self._ranks.all([(is_taken, why) for _, is_taken, why in chosen])
        taken = []
        for number, (fix, is_taken, why) in enumerate(chosen):
            against = [(rank, words[number][1]) for rank, words in enumerate(said)
                       if not words[number][0]]  # fmt: skip
            if not against:
                taken.append(fix)
            reason = f"rank {against[0][0]}: {against[0][1]}" if is_taken and against else why
            self._tried.fixes.append(FixOutcome(fix.name, fix.kind, "skipped", reason))
        return taken

    def _proved(self, taken: list[Fix]) -> list[Fix]:
        """Those that leave results as they are and do not slow the script down."""
        if not taken:
            return taken
        self._say("timing it as it is …")
        self._others = Others()
        self._patience = Patience(*_EXACT_PATIENCE)
        self._run_as_it_is()
        taken = self._without_kept_memory(taken)
        while taken:
            self._say(f"trying {', '.join(fix.name for fix in taken)} …")
            fixed, fault = self._judge([fix.name for fix in taken])
            if fault is None:
                assert fixed[0].trace is not None
                reference = self._reference
                self._tried.checked = reference.compared(fixed[0].trace)
                if not self._had_nothing_to_do([fix.name for fix in taken], fixed[-1]):
                    crowd = self._speed_in_a_crowd(fixed, [fix.name for fix in taken])
                    self._tried.speed = crowd or self._speed_at_last(fixed)
                self._tried.expected = list(reference.runs)
                self._tried.left = fixed[-1].left
                return taken
            taken = self._without_culprit(taken, fault)
        return taken

    def _without_kept_memory(self, taken: list[Fix]) -> list[Fix]:
        """Where steps get no new pages that it could spare them."""
        trace = self._runs[-1].trace
        if kept_memory.FIX not in taken:
            return taken
        if self._any(trace is None or kept_memory.takes_pages(trace)):
            return taken
        for outcome in self._tried.fixes:
            if outcome.name == kept_memory.NAME:
                outcome.why = "steps are given no new pages, so there are none to keep"
        return [fix for fix in taken if fix is not kept_memory.FIX]

    def _without_those_that_do_less(self, exact: list[Fix], numeric: set[str]) -> list[Fix]:
        less = {name: more for name, more in _DOES_MORE.items() if more in numeric}
        for outcome in self._tried.fixes:
            if outcome.name in less:
                outcome.state, outcome.why = "skipped", f"{less[outcome.name]} does more"
        return [fix for fix in exact if fix.name not in less]

    def _run_as_it_is(self) -> None:
        trial = self._try(())
        if not trial.is_good:
            raise TrialFailed(
                f"{self._target} got through its first steps once and then not again. Its last"
                f" words:\n{trial.said.strip()}"
            )
        trace = trial.trace
        is_blind = trace is None or not (trace.batches or trace.losses or trace.ends)
        if self._any(is_blind):
            raise TrialFailed(f"{self._target} was seen to train once, and then not again")
        self._runs.append(trial)

    @property
    def _reference(self) -> Reference:
        return Reference(tuple(run.trace for run in self._runs if run.trace is not None))

    def _judge(self, names: list[str]) -> tuple[list[Trial], str | None]:
        """Trials with these fixes, and what is wrong with them, if anything is for any rank."""
        fixed: list[Trial] = []
        fault: str | None = None
        looks = ""
        while len(fixed) < _MOST_PAIRS:
            if fixed:
                self._say(f"it looks {looks}; once more without, and with it …")
                self._run_as_it_is()
            fixed.append(self._try(names))
            fault = self._fault(fixed[-1])
            if self._any(fault is not None) or self._had_nothing_to_do(names, fixed[-1]):
                break
            fault = self._is_slower(fixed)
            if self._any(fault is not None or self._looks_slower(fixed)):
                looks = "slower"
            elif len(fixed) < _PAIRS_TO_BE_SURE and self._any(self._may_be_faster(fixed)):
                looks = "faster"
            else:
                break
            if self._is_late():
                break
        faults = self._ranks.all(fault)
        for rank, found in enumerate(faults):
            if found is not None:
                return fixed, found if len(faults) == 1 else f"rank {rank}: {found}"
        return fixed, None

    def _fault(self, fixed: Trial) -> str | None:
        """What is wrong with its results."""
        if not fixed.is_good or fixed.trace is None:
            return f"the script failed with it: {fixed.last_words}"
        difference = self._reference.fault(fixed.trace)
        while self._any(difference is not None) and self._may_differ_by_itself():
            self._say("results differ; do they in runs of the script itself? …")
            self._run_as_it_is()
            difference = self._reference.fault(fixed.trace)
        return None if difference is None else str(difference)

    def _had_nothing_to_do(self, names: list[str], fixed: Trial) -> bool:
        """On any rank. Whatever the clock says then, they are not what it comes from."""
        return all(self._ranks.all(fixed.left.keys() >= {*names}))

    def _speed(self, fixed: list[Trial], beside: int | None = None) -> Speed | None:
        """Of all steps of these trials, `beside` so many of the script as it is: as many."""
        before, after = (
            [step for run in runs if run.trace for step in steady_seconds(run.trace)]
            for runs in (self._runs[-(beside or len(fixed)) :], fixed)
        )
        return speed_of(before, after)

    def _speed_at_last(self, fixed: list[Trial]) -> Speed | None:
        """What the user is told."""
        return across_processes(self._speed(fixed), len(fixed))

    def _speed_in_a_crowd(self, fixed: list[Trial], names: list[str]) -> Speed | None:
        """Where others take cores, the script as it is may have had more or less of them than with
        the fixes: it is timed on both sides. None where nobody does.
        """
        if not self._warn_of_a_crowd():
            return None
        self._say("other programs take cores: timing it as it is once more …")
        if not self._time_again():
            return None
        speed = self._speed(fixed, beside=len(fixed) + 1)
        if not self._any(speed is not None and speed.high < 1):
            return self._rough(speed, fixed, beside=len(fixed) + 1)
        # They may have come or gone in between.
        self._say("it looks slower; once more with the fixes …")
        fixed = [*fixed, self._try(names)]
        if not fixed[-1].is_good:
            return speed
        return self._rough(self._speed(fixed), fixed, beside=len(fixed))

    def _time_again(self) -> bool:
        """The script as it is; what was proved stays proved where that fails."""
        again = self._try(())
        if again.is_good:
            self._runs.append(again)
        return again.is_good

    def _rough(self, speed: Speed | None, fixed: list[Trial], beside: int) -> Speed | None:
        """With the interval of what any two of them say: in a crowd whole processes are faster or
        slower, which the steps of one do not show.
        """
        pairs = [
            compare_speed(run.trace, other.trace)
            for run in self._runs[-beside:] if run.trace
            for other in fixed if other.trace
        ]  # fmt: skip
        known = [pair for pair in pairs if pair is not None]
        if speed is None or not known:
            return speed
        return replace(
            speed, low=min(pair.low for pair in known), high=max(pair.high for pair in known)
        )

    def _warn_of_a_crowd(self) -> bool:
        """Whether others take cores, from any rank."""
        words = self._ranks.all(crowded(self._others.facts()))
        for rank, said in enumerate(words):
            if said is not None:
                whose = f"rank {rank}: " if len(words) > 1 else ""
                self._tried.warnings = [f"{whose}{said}: {ROUGH}"]
                return True
        return False

    def _is_slower(self, fixed: list[Trial]) -> str | None:
        """By how much, where it is hardly the machine. What does not pay is not worth a risk."""
        speed = self._slower_speed(fixed)
        if speed is None or speed.ratio >= _SLOWER or speed.high >= _NO_FASTER:
            return None
        return f"slower: {speed.ratio:.2f} x"

    def _looks_slower(self, fixed: list[Trial]) -> bool:
        speed = self._slower_speed(fixed)
        return speed is not None and speed.ratio < _UNSURE

    def _may_be_faster(self, fixed: list[Trial]) -> bool:
        """Whether they look so, and what a user would be told is that nobody knows."""
        speed = self._speed_at_last(fixed)
        return speed is not None and speed.low < 1 and speed.ratio >= _PROMISING

    def _slower_speed(self, fixed: list[Trial]) -> Speed | None:
        """Where all pairs of trials are slower, as processes of the same script differ as well."""
        for before, after in zip(self._runs[-len(fixed) :], fixed, strict=True):
            assert before.trace is not None and after.trace is not None
            pair = compare_speed(before.trace, after.trace)
            if pair is None or pair.ratio >= 1:
                return None
        return self._speed(fixed)

    def _may_differ_by_itself(self) -> bool:
        """Whether one more run of the script may show that the difference is its own: two that
        are equal on a processor are enough.
        """
        if len(self._runs) < 2:
            return True
        varies = not self._reference.agrees or _on_device(self._runs[0])
        return len(self._runs) < _MOST_RUNS and self._any(varies)

    def _any(self, is_so: bool) -> bool:
        return any(self._ranks.all(is_so))

    def _is_late(self) -> bool:
        return self._any(self._patience.is_over)

    def _without_culprit(self, taken: list[Fix], fault: str) -> list[Fix]:
        """All but the first that is at fault by itself; if none is, all but the last. None where
        that takes too long to find out.
        """
        culprit = taken[-1]
        if len(taken) > 1:
            for fix in taken:
                if self._is_late():
                    self._undo(taken, f"{fault}; {_NO_TIME}")
                    return []
                _, alone = self._judge([fix.name])
                if alone is not None:
                    culprit, fault = fix, alone
                    break
            else:
                others = ", ".join(fix.name for fix in taken[:-1])
                fault = f"{fault}, and only together with {others}"
        self._undo([culprit], fault)
        return [fix for fix in taken if fix is not culprit]

    def _undo(self, fixes: list[Fix], why: str) -> None:
        names = {fix.name for fix in fixes}
        for outcome in self._tried.fixes:
            if outcome.name in names:
                outcome.state, outcome.why = "undone", why

    def _proved_in_band(self, candidates: list[Fix], exact: list[Fix]) -> list[Fix]:
        """Those that are faster and whose losses stay among those of the script's own runs."""
        names = tuple(fix.name for fix in exact)
        tried = self._tried
        self._patience = Patience(*_NUMERIC_PATIENCE)
        proof = prove(
            self._target, tried.seed, names, candidates, self._place, self._say, self._try_as_first,
            self._is_late,
        )  # fmt: skip
        said = {outcome.name: outcome for outcome in proof.outcomes}
        tried.fixes = [said.get(outcome.name, outcome) for outcome in tried.fixes]
        kept = [fix for fix in candidates if fix.name in proof.kept]
        if kept:
            own = f"with the exact fixes alone {tried.checked}; with all " if exact else ""
            tried.checked = own + proof.checked
            if not self._runs:
                self._run_as_it_is()
            tried.speed = self._speed_of_all([*names, *proof.kept], proof) or tried.speed
            # They round differently: batches alone are those of the script, or not even they.
            draws_others = any(fix.name in DRAWS_OTHERS for fix in kept)
            runs = proof.traces if draws_others else self._reference.runs
            tried.expected = [Trace(batches=run.batches) for run in runs]
        return kept

    def _speed_of_all(self, names: list[str], proof: Proof) -> Speed | None:
        """In turns with the script as it is: the machine may be another than at first. A trial that
        fails here did not before, and is left out.
        """
        self._say("timing it as it is, and with all of them …")
        fixed: list[Trial] = []
        while len(fixed) < _PAIRS_OF_ALL and self._time_again():
            fixed.append(self._try(names))
            if not fixed[-1].is_good:
                fixed.pop()
                self._runs.pop()
                break
        if not fixed:
            return self._speed([Trial(proof.traces[-1], None, "")], beside=len(self._runs))
        return self._speed_in_a_crowd(fixed, names) or self._speed_at_last(fixed)

    def _try(self, names: Iterable[str]) -> Trial:
        return self._timed(
            self._target, seed=self._tried.seed, fixes=tuple(names), known=self._place
        )

    def _timed(self, target: Target, **options: Any) -> Trial:
        began = time.monotonic()
        trial = try_out(target, **options, steps=self._steps, ranks=self._ranks)
        self._patience.note(time.monotonic() - began)
        return trial

    def _try_as_first(self, target: Target, **options: Any) -> Trial:
        """A trial with what the first rank saw in it, so that all ranks conclude the same."""
        trial = self._timed(target, **options)
        if self._ranks.world == 1 or trial.trace is None:
            return trial
        seen = self._ranks.first({**vars(trial.trace)})
        return Trial(trace_of(seen), trial.capture, trial.said)


def _enough_steps(step_s: float) -> int:
    """Of a script that takes so long for one; not known: 0.

    >>> [_enough_steps(seconds) for seconds in (0.001, 0.04, 0.5, 0.0)]
    [192, 144, 48, 48]
    """
    times = _ENOUGH_S / (STEPS * step_s) if step_s else 1
    return STEPS * max(1, min(_MOST_TIMES, round(times)))


def _on_device(run: Trial) -> bool:
    return run.trace is not None and run.trace.on_device


def _trains(capture: Capture) -> bool:
    """Whether there was a batch, a backward pass or a step: else nothing can be compared."""
    return any(
        span.kind in (BACKWARD, OPTIMIZER) or (span.kind == NEXT and span.detail[2] >= 0)
        for span in capture.spans
    )
