"""What two trials say together; what they would have run is given."""

from typing import Any

import pytest

from slipstream.launch import Target
from slipstream.run import trials
from slipstream.run.choose import Wish
from slipstream.run.ranks import Ranks
from slipstream.run.trace import Trace
from slipstream.run.trial import Trial


def trial(step_s: float, loss: float = 1.0) -> Trial:
    ends = [step_s * number for number in range(40)]
    made = Trace(batches=[(0, "a")] * 40, losses=[loss.hex()] * 40, ends=ends, ended="window")
    return Trial(made, None, "")


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        (trial(0.05), trial(0.05), None),
        (trial(0.13), trial(0.08), None),  # the machine was busy
        (trial(0.13), trial(0.13), "slower: 0.77 x"),
        (trial(0.102), trial(0.102), "slower: 0.98 x"),
        (trial(0.13), Trial(None, None, "Segmentation fault"), "the script failed with it"),
        (trial(0.13), trial(0.08, loss=2.0), "backward pass 1"),
    ],
)
def test_a_second_trial_is_judged_like_the_first(
    first: Trial, second: Trial, fault: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    fixed = iter([first, second])

    def try_out(target: Any, *, fixes: Any = (), **options: Any) -> Trial:
        return next(fixed) if fixes else trial(0.1)

    monkeypatch.setattr(trials, "try_out", try_out)
    tried = trials.Trials(Target("train.py"), Wish(), 0, tmp_path, lambda line: None, Ranks())
    tried._run_as_it_is()
    found = tried._judge(["some-fix"])[1]
    assert found is None if fault is None else fault in str(found)
