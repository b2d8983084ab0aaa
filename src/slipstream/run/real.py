"""The run itself: with the fixes that have passed, and still compared with its trials at first."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree

from slipstream.doctor.capture import BACKWARD, OPTIMIZER
from slipstream.launch import Ran, Target, run_target, wait_for_threads
from slipstream.run.apply import apply_all
from slipstream.run.check import Difference, Reference
from slipstream.run.child import seed_all
from slipstream.run.early import give_back
from slipstream.run.fix import Situation, warn
from slipstream.run.follow import Follower
from slipstream.run.idle import IDLE, idle
from slipstream.run.next import next_of
from slipstream.run.outcome import FixOutcome, Outcome
from slipstream.run.ranks import Ranks, find_ranks
from slipstream.run.tried import Tried, load_tried

PLACE = "slipstream-run-"
# A device may add in another order in one run of some: trials that were equal do not exclude it.
_NEAR_ON_DEVICE = 1e-3
_SEVERAL = 1.9  # backward passes for a step of an optimizer: gradients are summed up


def run_for_real(target: Target, folder: Path) -> Outcome:
    """Run it in this process with what trials have left in `folder`, which is removed."""
    tried, situation = load_tried(folder)
    if folder.name.startswith(PLACE):
        rmtree(folder, ignore_errors=True)
    return _Real(target, tried, situation).run()


def outcome_of(target: Target, tried: Tried, situation: Situation) -> Outcome:
    """What is known when the script has not run, or is over."""
    following: tuple[str | None, str] = (None, "")
    applied = [fix for fix in tried.fixes if fix.state == "applied"]
    for fix in tried.fixes:
        fix.hear(situation)
    missed = [fix.name for fix in applied if fix.state != "applied" and fix.name not in tried.left]
    ceiling = None if _accumulates(situation) else situation.report.get("ceiling_ms")
    with contextlib.suppress(Exception):  # advice is no reason to fail
        step = next_of(target, situation, tried.fixes, tried.speed)
        following = (step.command, step.why)
    return Outcome(
        script=str(target), fixes=tried.fixes, checked=tried.checked, speed=tried.speed,
        ceiling_per_s=1000 / ceiling if ceiling else None, warnings=tried.warnings,
        next=following[0], next_why=following[1], situation=situation, rank=tried.rank,
        tried_s=tried.seconds, missed=missed,
    )  # fmt: skip


def _accumulates(situation: Situation) -> bool:
    """Whether a step of the optimizer, which is what is counted here, takes several batches."""
    kinds = [span.kind for span in situation.capture.spans] if situation.capture else []
    return kinds.count(BACKWARD) >= _SEVERAL * kinds.count(OPTIMIZER) > 0


class _Real:
    def __init__(self, target: Target, tried: Tried, situation: Situation) -> None:
        self._target, self._tried, self._situation = target, tried, situation
        self._failed_to_undo = False

    def run(self) -> Outcome:
        tried = self._tried
        # As in trials: a script that sets no seed would have drawn one as good.
        seed_all(tried.seed)
        give_back()
        self._undo = apply_all(tried.names, self._situation)
        follower = Follower(expected=self._expected(), at_difference=self._leave)
        follower.start()
        ran = run_target(
            self._target, lambda ran: _wait_for_threads(ran, follower), tells_interrupts=True
        )
        follower.stop()
        self._take_away()
        self._note_idle()
        outcome = outcome_of(self._target, tried, self._situation)
        outcome.exit_code = ran.exit_code or int(self._failed_to_undo)
        outcome.was_interrupted = ran.ended == "interrupted"
        outcome.steps, outcome.steps_per_s = follower.steps, follower.per_s
        self._hear_others(outcome)
        return outcome

    def _note_idle(self) -> None:
        """Fixes that had nothing to do did nothing."""
        applied = {fix.name: fix for fix in self._tried.fixes if fix.state == "applied"}
        for name, why in idle(applied, self._situation):
            applied[name].state, applied[name].why = "skipped", why

    def _hear_others(self, outcome: Outcome) -> None:
        """What went otherwise for other ranks: the first waits a moment for them."""
        try:
            ranks = find_ranks("real")
            ranks.tell([[fix.name, fix.state, fix.why] for fix in outcome.fixes])
            if ranks.rank == 0:
                outcome.others = _differences(outcome.fixes, ranks)
        except Exception as error:
            if outcome.rank == 0:
                outcome.others = [f"other ranks could not be asked: {error}"]

    def _expected(self) -> Reference | None:
        tried = self._tried
        if not tried.names or not tried.expected:
            return None
        on_device = any(run.on_device for run in tried.expected)
        return Reference(tuple(tried.expected), _NEAR_ON_DEVICE if on_device else 0.0)

    def _leave(self, difference: Difference) -> None:
        """The run is not what its trials were: whatever is the reason, no fix may be."""
        why = f"the run itself was not as its trials: {difference}"
        line = f"{why}. All fixes were undone there, and the script went on as written."
        self._tried.warnings.append(line)
        self._tried.speed = None
        self._tried.checked = "trials were equal, the run was not: it may depend on its input"
        for outcome in self._tried.fixes:
            if outcome.state == "applied":
                outcome.state, outcome.why = "undone", why
        self._take_away()
        warn(line)

    def _take_away(self) -> None:
        while self._undo:
            name, take_away = self._undo.popitem()
            try:
                take_away()
            except Exception as error:  # such as a checkpoint that could not be written
                self._tried.warnings.append(f"{name}: {error}")
                self._failed_to_undo = True


def _wait_for_threads(ran: Ran, follower: Follower) -> None:
    """They train with the fixes. Whoever does not want to wait gets the table."""
    if ran.ended in ("script", "error"):
        with contextlib.suppress(KeyboardInterrupt):
            wait_for_threads(lambda: follower.signs, lambda: False)


def _differences(fixes: Sequence[FixOutcome], ranks: Ranks) -> list[str]:
    own = {fix.name: fix.state for fix in fixes}
    lines = []
    for rank in range(1, ranks.world):
        told = ranks.told_by(rank)
        if told is None:
            lines.append(f"rank {rank}: has not said how it went")
            continue
        for name, state, why in told:
            is_idle = why == IDLE or any(fix.name == name and fix.why == IDLE for fix in fixes)
            if own.get(name) != state and not is_idle:
                lines.append(f"rank {rank}: {name} {state}, {why}")
    return lines
