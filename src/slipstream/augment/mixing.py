"""Mixup and CutMix: each picture with the one before it in the batch, and their labels alike.

One mixture serves a whole batch; its numbers are those of the batch's first sample. So a batch is
the same whoever makes it, and another one where it begins with another sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.functional import one_hot

from slipstream.augment.batch_steps import Parameters
from slipstream.augment.draws import BETA_BLOCKS, beta, one_of
from slipstream.augment.levels import each
from slipstream.augment.steps import Random
from slipstream.errors import UsageError


@dataclass(frozen=True)
class Mix:
    """Pictures and labels: share times their own, plus the rest of the ones before them.

    Words: those of `draws.beta`. Parameters: `share` float64[1].
    """

    is_pointwise: ClassVar[bool] = True
    allows_flips: ClassVar[bool] = False
    alpha: float
    classes: int
    label: str
    op: int

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """How much is each picture's own."""
        return {"share": torch.from_numpy(beta(random(self.op, BETA_BLOCKS)[:1], self.alpha))}

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """The sum."""
        share = each(drawn["share"], pixels)
        return pixels * share + pixels.roll(1, 0) * (1.0 - share)


@dataclass(frozen=True)
class Cut:
    """A box of the picture before; labels by area.

    Words: those of `draws.beta`, then, in a block of their own behind them, the middle's column
    and row. Parameters: `share` float64[1] and `boxes` int64[1, 4] (left, top, width, height).
    """

    is_pointwise: ClassVar[bool] = True
    allows_flips: ClassVar[bool] = False
    alpha: float
    classes: int
    label: str
    op: int

    def draw(self, random: Random, height: int, width: int) -> Parameters:
        """The box, and what it leaves."""
        words = random(self.op, BETA_BLOCKS + 1)[:1]
        half = 0.5 * np.sqrt(1.0 - beta(words, self.alpha))
        x, y = one_of(words[:, -4], width), one_of(words[:, -3], height)
        across, down = (half * width).astype(np.int64), (half * height).astype(np.int64)
        left, top = np.maximum(x - across, 0), np.maximum(y - down, 0)
        right, bottom = np.minimum(x + across, width), np.minimum(y + down, height)
        boxes = np.stack([left, top, right - left, bottom - top], axis=1)
        share = 1.0 - (boxes[:, 2] * boxes[:, 3]) / (width * height)
        return {"share": torch.from_numpy(share), "boxes": torch.from_numpy(boxes)}

    def apply(self, pixels: torch.Tensor, drawn: Parameters) -> torch.Tensor:
        """The boxes pasted."""
        left, top, across, down = drawn["boxes"][0].tolist()
        mixed = pixels.clone()
        area = (slice(None), slice(None), slice(top, top + down), slice(left, left + across))
        mixed[area] = pixels.roll(1, 0)[area]
        return mixed


Mixing = (Mix, Cut)


def mix_labels(step: Mix | Cut, columns: Mapping[str, Any], drawn: Parameters) -> torch.Tensor:
    """The labels of a batch as float32[N, classes], mixed as its pictures are.

    Raises `UsageError` where they are not class numbers.
    """
    labels = columns.get(step.label)
    if labels is None:
        raise UsageError(
            f'{_name(step)} mixes the field "{step.label}", and samples hold'
            f" {', '.join(columns)}. Name the one with the class numbers: label=…"
        )
    share = drawn["share"].to(torch.float32)
    rows = _rows(step, labels)
    return rows * share + rows.roll(1, 0) * (1.0 - share)


def _rows(step: Mix | Cut, labels: Any) -> torch.Tensor:
    name, classes = _name(step), step.classes
    is_tensor = isinstance(labels, torch.Tensor)
    if is_tensor and labels.dtype == torch.float32 and labels.shape[1:] == (classes,):
        mixed: torch.Tensor = labels  # by a step before this one
        return mixed
    if not is_tensor or labels.dtype != torch.int64 or labels.ndim != 1:
        kind = f"{labels.dtype}{list(labels.shape)}" if is_tensor else f"a list of {len(labels)}"
        raise UsageError(
            f'{name} mixes class numbers, and the field "{step.label}" is {kind}. Name one that'
            " holds an integer for each sample: label=…"
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        wrong = int(labels.max()) if int(labels.max()) >= classes else int(labels.min())
        raise UsageError(
            f'{name} has num_classes={classes}, and the field "{step.label}" holds {wrong}.'
            " Classes are numbered from 0."
        )
    rows: torch.Tensor = one_hot(labels, classes)
    return rows.to(torch.float32)


def _name(step: Mix | Cut) -> str:
    return "Mixup" if isinstance(step, Mix) else "CutMix"
