"""A patch that keeps what the fixes were proved to keep."""

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from slipstream.launch import Target
from slipstream.run.check import Reference, first_difference
from slipstream.run.diff.make import Patch, make_patch
from slipstream.run.diff.workspace import Workspace
from slipstream.run.fix import Situation
from slipstream.run.outcome import Outcome
from slipstream.run.situation import diagnosed
from slipstream.run.speed import Speed, compare_speed
from slipstream.run.speed_up import NOT_HERE
from slipstream.run.trace import Trace
from slipstream.run.trial import Trial, try_out

_SLOWER = 0.98
_MOST_RUNS, _MOST_PAIRS = 3, 3
_MODULE = "slipstream.run.diff.patched"


class Proof:
    """Tries patches of a script, beside the script itself; or, where fixes are applied that may
    round differently, beside the script with these.
    """

    def __init__(self, target: Target, outcome: Outcome, situation: Situation) -> None:
        self._target, self._situation = target, situation
        self._seed = random.SystemRandom().getrandbits(32)
        self.rounding = tuple(
            fix.name for fix in outcome.fixes if fix.state == "applied" and fix.kind == "N"
        )
        self._original: Trial | None = None
        self._others: list[Trace] | None = None  # of the same script
        self.checked = ""
        self.speed: Speed | None = None

    def fault(self, patch: Patch) -> str | None:
        """What is wrong with it, in words. One that seems to be slower is timed again: processes of
        the same script differ as well.
        """
        if self._original is None:
            self._original = self._try_original()
        original = self._original
        for _ in range(_MOST_PAIRS):
            wrong = self._difference(original, self._try_patched(patch))
            if wrong is not None or not self._is_slower():
                return wrong
            original = self._try_original()
        assert self.speed is not None
        return f"slower: {self.speed.ratio:.2f} x"

    def _is_slower(self) -> bool:
        return not self.rounding and self.speed is not None and self.speed.high < _SLOWER

    def _difference(self, original: Trial, changed: Trial) -> str | None:
        if not original.is_good:
            return "the script did not get through its first steps once more"
        if not changed.is_good:
            return f"the script fails with it: {changed.last_words}"
        assert original.trace is not None and changed.trace is not None
        reference = Reference((original.trace,))
        difference = reference.fault(changed.trace)
        if difference is not None:
            # Its own runs may differ as well.
            reference = self._reference(original.trace)
            difference = reference.fault(changed.trace)
        if difference is not None:
            return str(difference)
        beside = f", beside the script with {', '.join(self.rounding)}" if self.rounding else ""
        self.checked = f"the changed script{beside}: {reference.compared(changed.trace)}"
        self.speed = compare_speed(original.trace, changed.trace)
        return None

    def _reference(self, first: Trace) -> Reference:
        """Of some runs where they differ, of two where they do not."""
        if self._others is None:
            self._others = []
            while len(self._others) < _MOST_RUNS - 1:
                again = self._try_original()
                if again.trace is None or not again.is_good:
                    break
                self._others.append(again.trace)
                if first_difference(first, again.trace) is None:
                    break
        return Reference((first, *self._others))

    def _try_original(self) -> Trial:
        with tempfile.TemporaryDirectory(prefix="slipstream-diff-") as place:
            diagnosed(self._situation.capture, Path(place))
            return try_out(self._target, seed=self._seed, fixes=self.rounding, known=Path(place))

    def _try_patched(self, patch: Patch) -> Trial:
        with tempfile.TemporaryDirectory(prefix="slipstream-diff-") as place:
            file = Path(place, "texts.json")
            file.write_text(json.dumps({str(path): patch.after[path] for path in patch.after}))
            script = ("-m", self._target.name) if self._target.is_module else (self._target.name,)
            target = Target(_MODULE, (str(file), *script, *self._target.args), is_module=True)
            return try_out(target, seed=self._seed)


def proved_patch(
    target: Target, outcome: Outcome, folder: Path, say: Callable[[str], None]
) -> tuple[Patch, Proof]:
    """Of the fixes that were applied. A fix whose own lines change a result is done by a call
    instead, or left out.
    """
    situation = outcome.situation
    assert situation is not None
    space = Workspace(target, folder)
    proof = Proof(target, outcome, situation)
    names = [fix.name for fix in outcome.fixes if fix.state == "applied"]
    patch = make_patch(names, space, situation)
    if not patch.after:
        return patch, proof
    say("trying the script with the changes …")
    fault = proof.fault(patch)
    if fault is None:
        return patch, proof
    faults: dict[str, str] = {}
    for name in patch.edited:
        alone = proof.fault(make_patch([name], space, situation))
        if alone is not None:
            faults[name] = alone
    kept = [name for name in names if name not in faults or name not in NOT_HERE]
    patch = make_patch(kept, space, situation, by_call=faults)
    fault = proof.fault(patch) if patch.after else None
    if fault is not None:
        patch = Patch(left_out=dict.fromkeys(names, fault))
    patch.left_out.update({name: why for name, why in faults.items() if name in NOT_HERE})
    return patch, proof
