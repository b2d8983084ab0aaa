"""What two trials say together; what they would have run is given."""

from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.launch import Target
from slipstream.run import trials
from slipstream.run.apply import FIXES
from slipstream.run.choose import Wish
from slipstream.run.numeric import Proof
from slipstream.run.outcome import FixOutcome
from slipstream.run.ranks import Ranks
from slipstream.run.trace import Trace
from slipstream.run.trial import Trial


def trial(step_s: float, loss: float = 1.0, spread: float = 0.0) -> Trial:
    """`spread`: of every six steps three take longer and three shorter, so speed is unsure."""
    steps = [step_s * (1 + spread * (-1) ** (number // 3)) for number in range(39)]
    ends = [0.0, *accumulate(steps)]
    made = Trace(batches=[(0, "a")] * 40, losses=[loss.hex()] * 40, ends=ends, ended="window")
    return Trial(made, None, "")


@pytest.mark.parametrize(
    ("results", "fault"),
    [
        ([trial(0.05)], None),
        ([trial(0.13), trial(0.08)], None),  # the machine was busy
        ([trial(0.2), trial(0.13), trial(0.0999)], None),  # twice
        ([trial(0.13), trial(0.13), trial(0.13)], "slower: 0.77 x"),
        ([trial(0.102), trial(0.102), trial(0.102)], "slower: 0.98 x"),
        ([trial(0.105, spread=0.6), trial(0.13), trial(0.13)], "slower: 0.8"),  # first unsure
        ([trial(0.105, spread=0.6), trial(0.08)], None),
        ([trial(0.08, spread=0.8), trial(0.08)], None),  # is it faster?
        ([trial(0.08, spread=0.8), trial(0.08, spread=0.8)], None),  # nobody knows
        ([trial(0.08, spread=0.8), trial(0.08, loss=2.0)], "backward pass 1"),
        ([trial(0.097, spread=0.6)], None),  # hardly
        ([trial(0.13), Trial(None, None, "Segmentation fault")], "the script failed with it"),
        ([trial(0.13), trial(0.08, loss=2.0)], "backward pass 1"),
        ([trial(0.13), trial(0.13), trial(0.08, loss=2.0)], "backward pass 1"),
    ],
)
def test_later_trials_are_judged_like_the_first(
    results: list[Trial], fault: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    fixed = iter(results)

    def try_out(target: Any, *, fixes: Any = (), **options: Any) -> Trial:
        return next(fixed) if fixes else trial(0.1)

    monkeypatch.setattr(trials, "try_out", try_out)
    tried = trials.Trials(Target("train.py"), Wish(), 0, tmp_path, lambda line: None, Ranks())
    tried._run_as_it_is()
    found = tried._judge(["some-fix"])[1]
    assert found is None if fault is None else fault in str(found)
    assert next(fixed, None) is None


@pytest.mark.parametrize("idle", [["some-fix", "other-fix"], ["some-fix"]])
def test_fixes_that_had_nothing_to_do_are_not_timed(
    idle: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Whatever looks slower or faster is not theirs, unless one of them did something."""
    made = []

    def try_out(target: Any, *, fixes: Any = (), **options: Any) -> Trial:
        made.append(fixes)
        found = trial(0.13 if fixes else 0.1)
        found.left.update(dict.fromkeys(idle, "nothing to do"))
        return found

    monkeypatch.setattr(trials, "try_out", try_out)
    monkeypatch.setattr(trials, "Others", Crowd)
    names = ["some-fix", "other-fix"]
    tried = trials.Trials(Target("train.py"), Wish(), 0, tmp_path, lambda line: None, Ranks())
    fixes = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(tried, "_without_culprit", lambda taken, fault: [])
    kept = tried._proved(fixes)  # type: ignore[arg-type]
    if len(idle) == len(names):
        assert kept == fixes
        assert made == [(), tuple(names)]
        assert tried._tried.speed is None
    else:
        assert kept == []
        assert len(made) > 2


def slow_trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> tuple[trials.Trials, list[Any]]:
    """Trials of which patience is over at once."""
    made: list[Any] = []

    def try_out(target: Any, *, fixes: Any = (), **options: Any) -> Trial:
        made.append(fixes)
        return trial(0.13 if fixes else 0.1)

    monkeypatch.setattr(trials, "try_out", try_out)
    monkeypatch.setattr(trials, "_EXACT_PATIENCE", (0.0, 0))
    monkeypatch.setattr(trials, "_NUMERIC_PATIENCE", (0.0, 0))
    tried = trials.Trials(Target("train.py"), Wish(), 0, tmp_path, lambda line: None, Ranks())
    tried._tried.fixes = [FixOutcome(fix.name, fix.kind, "skipped", "") for fix in FIXES]
    return tried, made


def test_a_culprit_is_not_looked_for_without_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    tried, made = slow_trials(monkeypatch, tmp_path)
    exact = [fix for fix in FIXES if fix.kind == "E"][:4]
    names = [fix.name for fix in exact]
    assert tried._proved(exact) == []
    assert made == [(), tuple(names)]
    undone = {fix.name: fix.why for fix in tried._tried.fixes if fix.state == "undone"}
    assert sorted(undone) == sorted(names)
    assert all(why.startswith("slower: 0.77 x; which of them it is was") for why in undone.values())


def test_numeric_fixes_are_not_tried_without_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    tried, made = slow_trials(monkeypatch, tmp_path)
    numeric = [fix for fix in FIXES if fix.kind == "N"]
    assert tried._proved_in_band(numeric, []) == []
    assert set(made) == {()}  # those of the band
    why = {fix.why for fix in tried._tried.fixes if fix.kind == "N"}
    assert why == {"not tried: other trials took too long; --only tries it alone"}


class Nobody:
    def facts(self) -> None:
        return None


class Crowd:
    def facts(self) -> dict[str, float]:
        return {"own": 1.2, "others": 0.8, "cores": 2.0}


@pytest.mark.parametrize("is_crowded", [False, True])
def test_in_a_crowd_the_script_is_timed_on_both_sides(
    is_crowded: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The machine gets slower: its first run alone would say that fixes do harm."""
    runs = iter([trial(0.1), trial(0.2)])

    def try_out(target: Any, *, fixes: Any = (), **options: Any) -> Trial:
        return trial(0.1) if fixes else next(runs)

    monkeypatch.setattr(trials, "try_out", try_out)
    monkeypatch.setattr(trials, "Others", Crowd if is_crowded else Nobody)
    tried = trials.Trials(Target("train.py"), Wish(), 0, tmp_path, lambda line: None, Ranks())
    tried._proved([next(fix for fix in FIXES if fix.kind == "E")])
    speed = tried._tried.speed
    assert speed is not None
    if is_crowded:
        assert speed.ratio == pytest.approx(1.5)
        assert speed.low == pytest.approx(1.0) and speed.high == pytest.approx(2.0)
        assert tried._tried.warnings == [
            "other programs took 0.8 of 2 cores meanwhile: times are rough"
        ]
    else:
        assert speed.ratio == pytest.approx(1.0)
        assert tried._tried.warnings == []


def test_a_timing_that_fails_takes_nothing_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    runs = iter([trial(0.1), Trial(None, None, "killed")])

    def try_out(target: Any, *, fixes: Any = (), **options: Any) -> Trial:
        return trial(0.05) if fixes else next(runs)

    monkeypatch.setattr(trials, "try_out", try_out)
    monkeypatch.setattr(trials, "Others", Crowd)
    tried = trials.Trials(Target("train.py"), Wish(), 0, tmp_path, lambda line: None, Ranks())
    exact = [next(fix for fix in FIXES if fix.kind == "E")]
    assert tried._proved(exact) == exact
    assert tried._tried.speed is not None and tried._tried.speed.ratio == pytest.approx(2.0)
    assert len(tried._tried.warnings) == 1


def test_a_crowd_that_leaves_in_between_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """It was there with the fixes, and half of the time without them."""
    runs, fixed = iter([trial(0.3), trial(0.05)]), iter([trial(0.3), trial(0.045)])

    def try_out(target: Any, *, fixes: Any = (), **options: Any) -> Trial:
        return next(fixed if fixes else runs)

    monkeypatch.setattr(trials, "try_out", try_out)
    monkeypatch.setattr(trials, "Others", Crowd)
    tried = trials.Trials(Target("train.py"), Wish(), 0, tmp_path, lambda line: None, Ranks())
    tried._proved([next(fix for fix in FIXES if fix.kind == "E")])
    assert tried._tried.speed is not None and tried._tried.speed.ratio > 1


@pytest.mark.parametrize(
    ("later", "with_all", "ratio"),
    [
        ([0.1, 0.1], [0.05, 0.05], 2.0),
        ([0.1, 0.2], [0.05, 0.05], 3.0),
        ([0.1, None], [0.05], 2.0),
        ([0.1, 0.1], [0.05, None], 2.0),
        ([None], [], 8.0),
        ([0.1], [None], 8.0),
    ],
)
def test_numeric_fixes_are_timed_in_turns_with_the_script_as_it_is_then(
    later: list[Any], with_all: list[Any], ratio: float, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:  # fmt: skip
    """The machine was slower when it was timed first. None: that trial fails."""
    exact, numeric = (next(fix for fix in FIXES if fix.kind == kind) for kind in "EN")
    as_it_is, fixed = iter([0.4, *later]), iter(with_all)

    def try_out(target: Any, *, fixes: Any = (), **options: Any) -> Trial:
        assert fixes in ((), (exact.name, numeric.name))
        step_s = next(fixed if fixes else as_it_is)
        return Trial(None, None, "killed") if step_s is None else trial(step_s)

    def prove(*_: Any) -> Proof:
        trace = trial(0.05).trace
        assert trace is not None
        return Proof([FixOutcome(numeric.name, "N", "applied", "")], [trace], "")

    monkeypatch.setattr(trials, "try_out", try_out)
    monkeypatch.setattr(trials, "prove", prove)
    monkeypatch.setattr(trials, "Others", Nobody)
    tried = trials.Trials(Target("train.py"), Wish(), 0, tmp_path, lambda line: None, Ranks())
    tried._run_as_it_is()
    assert tried._proved_in_band([numeric], [exact]) == [numeric]
    assert tried._tried.speed is not None
    assert tried._tried.speed.ratio == pytest.approx(ratio)
    assert next(as_it_is, None) is next(fixed, None) is None
