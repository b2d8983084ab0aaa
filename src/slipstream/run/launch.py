"""`slipstream run`: diagnose, try the fixes in processes that are thrown away, then run."""

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from slipstream.errors import UsageError
from slipstream.launch import Target, run_target
from slipstream.run.apply import apply_all
from slipstream.run.check import compared, first_difference
from slipstream.run.choose import Wish, check_wish, choose
from slipstream.run.fix import Fix, Situation
from slipstream.run.numeric import prove
from slipstream.run.outcome import FixOutcome, Outcome
from slipstream.run.situation import diagnosed
from slipstream.run.speed import Speed, compare_speed
from slipstream.run.trial import Trial, try_out

_DIAGNOSED_STEPS = 40
_SLOWER = 0.98
_UNCHECKED = "nothing was applied, nothing to check"
Say = Callable[[str], None]


def run(target: Target, wish: Wish, *, dry: bool = False, say: Say = lambda line: None) -> Outcome:
    """Run the script with all fixes that help and pass their check; `dry`: only try them."""
    check_wish(wish)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("Several ranks cannot be tried yet: run one process, without torchrun.")
    seed = random.SystemRandom().getrandbits(32)
    with tempfile.TemporaryDirectory(prefix="slipstream-run-") as place:
        return _Run(target, wish, seed, Path(place), say).run(dry=dry)


class _Run:
    def __init__(self, target: Target, wish: Wish, seed: int, place: Path, say: Say) -> None:
        self._target, self._wish, self._seed = target, wish, seed
        self._place, self._say = place, say
        self._warnings: list[str] = []
        self._fixes: list[FixOutcome] = []
        self._checked = _UNCHECKED
        self._speed: Speed | None = None
        self._original: Trial | None = None

    def run(self, *, dry: bool) -> Outcome:
        situation = self._diagnose()
        taken: list[Fix] = []
        for fix, is_taken, why in choose(situation, self._wish):
            self._fixes.append(FixOutcome(fix.name, fix.kind, "skipped", why))
            if is_taken:
                taken.append(fix)
        exact = [fix for fix in taken if fix.kind == "E"]
        if exact:
            exact = self._proved(exact)
        taken = exact + self._proved_in_band([f for f in taken if f.kind == "N"], exact)
        for outcome in self._fixes:
            if any(fix.name == outcome.name for fix in taken):
                outcome.state = "applied"
        return self._outcome(situation) if dry else self._real(taken, situation)

    def _diagnose(self) -> Situation:
        self._say("looking at the script …")
        trial = try_out(self._target, seed=self._seed, diagnose=True, steps=_DIAGNOSED_STEPS)
        if not trial.is_good or trial.capture is None:
            raise UsageError(
                f"{self._target} did not get through its first steps in a trial, so there is"
                f" nothing to compare with. Its last words:\n{trial.said.strip()}"
            )
        return diagnosed(trial.capture, self._place)

    def _proved(self, taken: list[Fix]) -> list[Fix]:
        """Those that leave results as they are and do not slow the script down."""
        self._say("timing it as it is …")
        original = self._original = self._try(())
        if not original.is_good:
            raise UsageError(
                f"{self._target} got through its first steps once and then not again. Its last"
                f" words:\n{original.said.strip()}"
            )
        while taken:
            self._say(f"trying {', '.join(fix.name for fix in taken)} …")
            fixed = self._try(fix.name for fix in taken)
            fault = self._fault(original, fixed)
            if fault is None:
                assert original.trace is not None and fixed.trace is not None
                batches, losses = compared(original.trace, fixed.trace)
                self._checked = f"{batches} batches and {losses} losses are equal, bit for bit"
                if not batches and not losses:
                    self._checked = "no batch and no loss was seen: nothing could be compared"
                self._speed = compare_speed(original.trace, fixed.trace)
                return taken
            taken = self._without_culprit(taken, original, fault)
        return taken

    def _proved_in_band(self, candidates: list[Fix], exact: list[Fix]) -> list[Fix]:
        """Those that are faster and whose losses stay among those of the script's own runs."""
        names = tuple(fix.name for fix in exact)
        proof = prove(self._target, self._seed, names, candidates, self._place, self._say)
        said = {outcome.name: outcome for outcome in proof.outcomes}
        self._fixes = [said.get(outcome.name, outcome) for outcome in self._fixes]
        kept = [fix for fix in candidates if fix.name in proof.kept]
        if kept:
            self._checked = f"{self._checked}; {proof.checked}".removeprefix(f"{_UNCHECKED}; ")
            original = self._original or self._try(())
            if original.trace is not None:
                faster = compare_speed(original.trace, proof.traces[-1])
                self._speed = faster or self._speed
        return kept

    def _try(self, names: Iterable[str]) -> Trial:
        return try_out(
            self._target,
            seed=self._seed,
            fixes=tuple(names),
            known=self._place,
        )

    def _fault(self, original: Trial, fixed: Trial) -> str | None:
        if not fixed.is_good:
            return f"the script failed with it: {fixed.said.strip().rpartition(chr(10))[2]}"
        assert original.trace is not None and fixed.trace is not None
        difference = first_difference(original.trace, fixed.trace)
        if difference is not None:
            return str(difference)
        speed = compare_speed(original.trace, fixed.trace)
        if speed is not None and speed.high < _SLOWER:
            return f"slower: {speed.ratio:.2f} x"
        return None

    def _without_culprit(self, taken: list[Fix], original: Trial, fault: str) -> list[Fix]:
        """All but the first that is at fault by itself; if none is, all but the last."""
        culprit = taken[-1]
        if len(taken) > 1:
            for fix in taken:
                alone = self._fault(original, self._try((fix.name,)))
                if alone is not None:
                    culprit, fault = fix, alone
                    break
        for outcome in self._fixes:
            if outcome.name == culprit.name:
                outcome.state, outcome.why = "undone", fault
        return [fix for fix in taken if fix is not culprit]

    def _real(self, taken: list[Fix], situation: Situation) -> Outcome:
        from slipstream.run.child import seed_all
        from slipstream.run.follow import Follower

        seed_all(self._seed)
        undo = apply_all([fix.name for fix in taken], situation)
        follower = Follower()
        follower.start()
        began = time.perf_counter()
        ran = run_target(self._target)
        seconds = time.perf_counter() - began
        follower.stop()
        exit_code = ran.exit_code
        for take_away in reversed(undo.values()):
            try:
                take_away()
            except Exception as error:  # such as a checkpoint that could not be written
                self._warnings.append(str(error))
                exit_code = exit_code or 1
        outcome = self._outcome(situation)
        outcome.exit_code = exit_code
        outcome.steps_per_s = follower.steps / seconds if follower.steps else None
        return outcome

    def _outcome(self, situation: Situation) -> Outcome:
        for outcome in self._fixes:
            outcome.notes = situation.notes.get(outcome.name, [])
            if outcome.name in situation.failures:
                outcome.state, outcome.why = "undone", situation.failures[outcome.name]
        ceiling = situation.report.get("ceiling_ms")
        return Outcome(
            script=str(self._target), fixes=self._fixes, checked=self._checked, speed=self._speed,
            ceiling_per_s=1000 / ceiling if ceiling else None, warnings=self._warnings,
            situation=situation,
        )  # fmt: skip
