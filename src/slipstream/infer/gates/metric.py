"""Whether a variant does its task as well: scores of single samples, paired with the model's."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from slipstream.errors import UsageError

_DRAWS = 2000
FEWEST = 50
_FEWEST_CHANGES = 3

# A score per sample, higher is better: accuracy is 1.0 where right, 0.0 where wrong.
Metric = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Drop:
    """How much lower the mean score is, with the bounds of about 95 %."""

    mean: float
    low: float
    high: float
    samples: int

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f}, {self.samples} samples)"


def scores_of(model: Any, metric: Metric, data: Sequence[Any]) -> list[float]:
    """One per sample. Raises `UsageError` for a metric that gives something else."""
    scores: list[float] = []
    for batch in data:
        with torch.no_grad():
            found = metric(model, batch)
        if not isinstance(found, torch.Tensor) or found.dim() != 1:
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise UsageError(
                f"metric gave {shape}; expected a tensor with one score per sample, such as "
                "(model(x).argmax(-1) == y).float()."
            )
        scores += found.double().tolist()
    return scores


def drop_of(before: Sequence[float], after: Sequence[float]) -> Drop:
    """Of paired scores. Raises `UsageError` where they are not as many.

    >>> drop_of([1.0] * 60 + [0.0], [1.0] * 60 + [0.0]).high < 3 / 60
    True
    """
    if len(before) != len(after):
        raise UsageError(
            f"metric gave {len(before)} scores of the model and {len(after)} of its variant;"
            " expected one for each sample of the same data."
        )
    drops = np.subtract(before, after)
    own = np.random.default_rng(0)
    size = len(drops)
    draws = [drops[own.integers(0, size, size)].mean() for _ in range(_DRAWS)] if size else [0.0]
    means = sorted(map(float, draws))
    low, high = means[int(0.025 * len(means))], means[int(0.975 * len(means)) - 1]
    if size > 0 and np.count_nonzero(drops) < _FEWEST_CHANGES:
        # What was not seen in n samples may still happen in 3 of n.
        scores = [*before, *after]
        reach = max(max(scores) - min(scores), *map(abs, scores))
        high = max(high, _FEWEST_CHANGES / size * reach)
    return Drop(float(drops.mean()) if size else 0.0, low, high, size)


def too_few(samples: int) -> str:
    """Why nothing is shown by so few."""
    return f"not shown: {samples} samples, at least {FEWEST} are needed"


def judge(drop: Drop, max_drop: float) -> str | None:
    """Why the task is not done as well; too few samples show nothing, and do not pass."""
    if drop.samples < FEWEST:
        return too_few(drop.samples)
    if worse := is_worse(drop, max_drop):
        return worse
    if not drop.high <= max_drop:
        return f"not shown: score drops by {drop}, which does not exclude more than {max_drop:g}"
    return None


def is_worse(drop: Drop, max_drop: float) -> str | None:
    """Why the task is surely not done as well."""
    if not math.isfinite(drop.mean):
        return "its scores, or those of the model, are not all finite numbers"
    if drop.samples >= FEWEST and drop.low > max_drop:
        return f"score drops by {drop}, more than {max_drop:g}"
    return None
