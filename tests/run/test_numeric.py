"""Which fixes that round differently are kept: by made-up trials."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.launch import Target
from slipstream.run.fix import Fix
from slipstream.run.numeric import Proof, prove
from slipstream.run.trace import Trace
from slipstream.run.trial import Trial

STEPS = 48
KNOWN = Path("known")


def fix(name: str) -> Fix:
    return Fix(name, "N", "", (), lambda known: (True, ""), lambda known: lambda: None)


def ends(
    step_s: float, seed: int, slow: dict[int, float] | None = None, noise: float = 0.05
) -> list[float]:
    own = random.Random(seed)
    now, found = 0.0, []
    for step in range(STEPS):
        now += step_s * own.uniform(1 - noise, 1 + noise) + (slow or {}).get(step, 0.0)
        found.append(now)
    return found


def losses(shift: int, factor: float = 1.0) -> list[float]:
    own = random.Random(shift)
    return [factor * (1 + math.exp(-n / 20)) + own.gauss(0, 0.1) for n in range(STEPS)]


class Script:
    """Trials of a script whose fixes change speed and losses as told."""

    def __init__(self, **effects: Any) -> None:
        self.effects = effects
        self.tried: list[tuple[tuple[str, ...], int]] = []
        self.losses: Callable[[int], list[float]] = losses
        self.noise = 0.05

    def try_out(self, target: Target, *, seed: int, fixes: Any, known: Path, shift: int) -> Trial:
        assert known == KNOWN
        assert seed == 7 + shift
        self.tried.append((fixes, shift))
        step_s, made = 0.1, self.losses(shift)
        slow: dict[int, float] = {}
        came_to = STEPS
        for name in fixes:
            effect = self.effects.get(name.replace("-", "_"), {})
            if effect.get("fails"):
                return Trial(None, None, "Traceback …\nRuntimeError: no\n")
            step_s /= effect.get("speed", 1.0)
            made = [loss * effect.get("loss", 1.0) for loss in made]
            slow = effect.get("slow", slow)
            for number, value in effect.get("bad", {}).items():
                made[number] = value
            came_to = effect.get("came_to", STEPS)
        trace = Trace(losses=[loss.hex() for loss in made[:came_to]])
        trace.ends = ends(step_s, len(self.tried), slow, self.noise)[:came_to]
        trace.ended = "window"
        return Trial(trace, None, "")

    def prove(self, *names: str) -> Proof:
        fixes = [fix(name) for name in names]
        return prove(Target("train.py"), 7, ("exact",), fixes, KNOWN, try_out=self.try_out)


def states(proof: Proof) -> dict[str, str]:
    return {outcome.name: outcome.state for outcome in proof.outcomes}


def test_faster_ones_are_kept_and_tried_with_those_before() -> None:
    script = Script(one={"speed": 1.3}, two={"speed": 1.2})
    proof = script.prove("one", "two")
    assert proof.kept == ["one", "two"]
    assert [fixes for fixes, _ in script.tried] == [
        *[("exact",)] * 4,
        ("exact", "one"), ("exact",), ("exact", "one"),
        ("exact", "one", "two"), ("exact", "one"), ("exact", "one", "two"),
    ]  # fmt: skip
    assert [shift for _, shift in script.tried] == [3, 2, 1, 0, *[0] * 6]
    assert proof.outcomes[0].why.startswith("1.3")
    assert "48 losses inside the band of 4 runs" in proof.outcomes[0].why
    assert len(proof.traces) == 2
    assert proof.checked == "losses stay in the band of 4 runs"


def test_one_that_is_no_faster_is_undone_after_its_first_trial() -> None:
    script = Script(one={"speed": 0.9}, two={"speed": 1.3})
    proof = script.prove("one", "two")
    assert states(proof) == {"one": "undone", "two": "applied"}
    assert "no gain" in proof.outcomes[0].why
    assert len(script.tried) == 4 + 1 + 3
    assert script.tried[-1][0] == ("exact", "two")


def test_one_that_learns_otherwise_is_undone_however_fast() -> None:
    proof = Script(one={"speed": 3.0, "loss": 1.5}).prove("one")
    assert states(proof) == {"one": "undone"}
    assert proof.outcomes[0].why.startswith("loss leaves the band at step ")
    assert proof.traces == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_whose_loss_is_no_number_is_undone(value: float) -> None:
    proof = Script(one={"speed": 3.0, "bad": {20: value}}).prove("one")
    assert proof.outcomes[0].why == f"loss is {value} at step 21"


def test_one_that_fails_is_undone_with_its_last_words() -> None:
    proof = Script(one={"fails": True}, two={"speed": 1.3}).prove("one", "two")
    assert states(proof) == {"one": "undone", "two": "applied"}
    assert proof.outcomes[0].why == "the script failed with it: RuntimeError: no"


def test_a_script_without_losses_keeps_only_what_compares_itself() -> None:
    script = Script(fold_batchnorm={"speed": 1.3}, other={"speed": 1.3})
    script.losses = lambda shift: []
    proof = script.prove("other", "fold-batchnorm")
    assert states(proof) == {"other": "undone", "fold-batchnorm": "applied"}
    assert "no losses to compare" in proof.outcomes[0].why
    assert "compared both ways" in proof.checked
    assert len(script.tried) == 1 + 3  # no further seeds, as there is nothing to see


def test_a_script_whose_own_loss_is_no_number_keeps_nothing() -> None:
    script = Script(one={"speed": 2.0})
    script.losses = lambda shift: [*losses(shift)[:-1], math.nan]
    proof = script.prove("one")
    assert states(proof) == {"one": "undone"}
    assert len(script.tried) == 4


def test_compiling_does_not_count_as_slow_and_is_told() -> None:
    slow = {0: 30.0, 25: 25.0}
    proof = Script(compile={"speed": 1.5, "slow": slow}).prove("compile")
    assert states(proof) == {"compile": "applied"}
    assert "s to get ready, which pays off after" in proof.outcomes[0].why
    # Others pay for their slow steps.
    assert states(Script(one={"speed": 1.5, "slow": slow}).prove("one")) == {"one": "undone"}


@pytest.mark.parametrize(("steps", "state"), [(STEPS - 8, "applied"), (6, "undone")])
def test_one_that_time_has_ended_is_compared_as_far_as_it_came(steps: int, state: str) -> None:
    """Getting ready took the rest of its time."""
    script = Script(compile={"speed": 2.0, "came_to": steps})
    assert states(script.prove("compile")) == {"compile": state}


def test_nothing_to_try() -> None:
    script = Script()
    assert script.prove().outcomes == []
    assert script.tried == []


def test_one_that_looks_faster_and_is_not_sure_is_tried_again() -> None:
    script = Script(one={"speed": 1.04})
    script.noise = 0.6
    assert script.prove("one").kept == ["one"]
    assert len([fixes for fixes, _ in script.tried if "one" in fixes]) == 3
    script = Script(one={"speed": 1.005})
    assert script.prove("one").kept == []
    assert len([fixes for fixes, _ in script.tried if "one" in fixes]) <= 2
