"""Whether training stays where it would be: losses and gradients of some dozen steps, beside the
band of the step as it is written.

Training is chaotic: two runs that differ in their last bit drift apart. The band is that of four
runs of the step as written, one of them from the start itself, three with other random numbers and
parameters that are changed in their last place. Losses have to stay inside as in `slipstream run`,
with half a per cent of how far the loss has come as the least that is allowed; the norm of the
gradient, over the last quarter, has to be one that these runs may have.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from slipstream.rng import seed_all
from slipstream.run.band import LEAST, RUNS, Band, band_of, departure
from slipstream.train.reference import nudge
from slipstream.train.snapshot import Snapshot
from slipstream.train.step import TrainStep

Verdict = Literal["equivalent", "different", "not shown"]
_VERDICTS: tuple[Verdict, ...] = ("equivalent", "not shown", "different")
FEWEST = 24  # steps, to show anything
MOST = 100
_WIDEST = 0.5  # of the loss: a band that tells nothing
_NORM = 0.1
_SKIPPED = 0.01


@dataclass(frozen=True)
class Run:
    """Of one training: loss and norm of the gradient of each step, and updates that were skipped
    behind the first quarter, while a scale is looked for.
    """

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    skipped: int = 0


@dataclass(frozen=True)
class Curve:
    """What a short training has shown."""

    verdict: Verdict
    why: str
    steps: int = 0
    losses: tuple[float, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def train(
    step: TrainStep, start: Snapshot, batches: Sequence[Any], steps: int, seed: int = 0
) -> Run:
    """From the start; a seed other than 0 also changes all parameters in their last place."""
    start.restore()
    if seed:
        nudge(step.model, seed)
    seed_all(seed)
    losses, norms, settled = [], [], 0
    for number in range(steps):
        if number == steps // 4:
            settled = step.skipped
        losses.append(step.backward(batches[number % len(batches)]))
        norms.append(_norm(step))
        step.update()
    found = Run(
        tuple(float(loss) for loss in losses),
        tuple(float(norm) for norm in norms),
        step.skipped - settled,
    )
    start.restore()
    return found


def runs_as_written(
    step: TrainStep, start: Snapshot, batches: Sequence[Any], steps: int
) -> list[Run]:
    """Those that make the band."""
    return [train(step, start, batches, steps, seed) for seed in range(RUNS + 1)]


def judge(written: Sequence[Run], run: Run) -> Curve:
    """Compare a training with those of the step as written."""
    steps = len(run.losses)
    if steps < FEWEST:
        why = f"there was time for {steps} steps, and {FEWEST} show something"
        return Curve("not shown", why, steps, run.losses)
    band = band_of([one.losses for one in written])
    if band is None:
        return Curve("not shown", "losses of the step as written are no numbers", steps, run.losses)
    width = (band.high[-1] - band.low[-1]) / (abs(band.high[-1] + band.low[-1]) or 1)
    if width > _WIDEST:
        why = f"runs of the step as written differ by {width:.0%} of the loss themselves"
        return Curve("not shown", why, steps, run.losses)
    why_not = departure(_widened(band), run.losses) or _norm_departure(written, run)
    if why_not is None and run.skipped > _SKIPPED * steps:
        why_not = f"{run.skipped} of {steps} updates were skipped, as gradients had overflown"
    if why_not is not None:
        return Curve("different", why_not, steps, run.losses)
    return Curve(
        "equivalent", f"{steps} losses inside the band of {len(written)} runs", steps, run.losses
    )


def judge_most(written: Sequence[Run], runs: Sequence[Run]) -> Curve:
    """Of several trainings the verdict that most of them have: one from another seed leaves the
    band in one of six cases.
    """
    found = [judge(written, run) for run in runs]
    found.sort(key=lambda curve: _VERDICTS.index(curve.verdict))
    return found[(len(found) - 1) // 2]


def _widened(band: Band) -> Band:
    """With a least width for losses that have come close to zero."""
    middles = [(low + high) / 2 for low, high in zip(band.low, band.high, strict=True)]
    reaches = [
        max((high - low) / 2, LEAST * abs(middles[0] - middle))
        for low, high, middle in zip(band.low, band.high, middles, strict=True)
    ]
    pairs = list(zip(middles, reaches, strict=True))
    return Band(
        tuple(middle - reach for middle, reach in pairs),
        tuple(middle + reach for middle, reach in pairs),
    )


def _norm_departure(written: Sequence[Run], run: Run) -> str | None:
    late = [_late(one.norms) for one in written]
    own = _late(run.norms)
    reach = max(max(late) - min(late), _NORM * max(late))
    if min(late) - reach <= own <= max(late) + reach:
        return None
    return f"the norm of its gradient is {own:.3g} in the end, as written {late[0]:.3g}"


def _late(values: Sequence[float]) -> float:
    return statistics.fmean(values[-max(1, len(values) // 4) :])


def _norm(step: TrainStep) -> torch.Tensor | float:
    gradients = [one.grad for one in step.parameters if one.grad is not None]
    if not gradients:
        return math.nan
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)])
    scale = step.scaler.get_scale() if step.scaler is not None else 1.0
    found: torch.Tensor = norms.norm() / scale
    return found
