"""A short training with a candidate, beside some of the step as it is written."""

import warnings

from slipstream.infer.keeping import TookTooLong, at_most
from slipstream.run.band import RUNS
from slipstream.train.curve import FEWEST, MOST, Curve, Run, judge_most, runs_as_written, train
from slipstream.train.judge import Judge, first_line
from slipstream.train.trial import Trial

_OTHER_SEEDS = 3
_SAFELY = 0.7  # of the time left


def training_of(judge: Judge, trial: Trial) -> Curve:
    """What it shows; "not shown" where there is no time for it, "different" where it fails."""
    seeds = _seeds(judge, trial)
    runs = (RUNS + 1 + len(seeds)) * max(trial.step_s, judge.written.step_s)
    steps = min(MOST, int(_SAFELY * judge.left_s / runs)) if judge.left_s > 0 else 0
    if steps < FEWEST:
        why = f"there was time for {steps} steps, and {FEWEST} show something"
        return Curve("not shown", why, steps)
    batches = judge.subject.batches
    try:
        with warnings.catch_warnings(), at_most(judge.left_s):
            warnings.simplefilter("ignore")
            written = judge.trainings.setdefault(steps, [])
            if not written:
                own = judge.written
                written += runs_as_written(own.step, own.start, batches, steps)
            found: list[Run] = [
                train(trial.step, trial.start, batches, steps, seed) for seed in seeds
            ]
    except TookTooLong:
        return Curve("not shown", "there was not time enough for a training", steps)
    except Exception as error:
        return Curve("different", first_line(error), steps)
    return judge_most(written, found)


def _seeds(judge: Judge, trial: Trial) -> range:
    """One training that differs in nothing but rounding; several where random numbers differ."""
    choices = trial.choices
    others = judge.reference.draws and (choices.compile or choices.micro_batch)
    return range(1, _OTHER_SEEDS + 1) if others else range(1)
