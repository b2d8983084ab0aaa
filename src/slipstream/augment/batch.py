"""Runs the stages of a pipeline that come after the geometry on a whole batch."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from slipstream.augment.batch_steps import Parameters
from slipstream.augment.chain import Link, Stage, apply_chain
from slipstream.augment.finish import Finish
from slipstream.augment.mixing import Mixing, mix_labels
from slipstream.augment.steps import Random


@dataclass(frozen=True)
class DrawnBatch:
    """Stages with the parameters of one batch, ready for any device."""

    links: tuple[Link, ...]
    finish: Finish

    def run(self, pixels: torch.Tensor) -> torch.Tensor:
        """The result for pixels [N, 3, H, W] of the first stage's kind, in any strides: as the last
        `Finish` says, uint8[N, H, W, 3] or [N, 3, H, W].
        """
        groups = itertools.groupby(self.links, lambda link: link[0].is_pointwise)
        *before, (_, last) = [(pointwise, list(links)) for pointwise, links in groups]
        for pointwise, links in before:
            pixels = _run_group(pixels, pointwise, links)
        return self._end(pixels, last)

    def _end(self, pixels: torch.Tensor, links: Sequence[Link]) -> torch.Tensor:
        finish = self.finish
        if finish.kind == "array":
            last = apply_chain(pixels, links, dtype=torch.uint8, memory_format=torch.channels_last)
            return last.permute(0, 2, 3, 1).contiguous()
        dtype = torch.uint8 if finish.kind == "uint8" else finish.dtype
        return apply_chain(pixels, links, dtype=dtype, memory_format=finish.memory_format)

    def mix_labels(self, columns: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The labels that Mixup and CutMix mix, by their field. Raises `UsageError`."""
        mixed: dict[str, torch.Tensor] = {}
        for stage, drawn in self.links:
            if isinstance(stage, Mixing):
                mixed[stage.label] = mix_labels(stage, {**columns, **mixed}, drawn)
        return mixed


def draw_batch(stages: Sequence[Stage], random: Random, height: int, width: int) -> DrawnBatch:
    """Draw the parameters of a batch of pictures of this size. The last of `stages` is a `Finish`
    and says what comes out.
    """
    last = stages[-1]
    assert isinstance(last, Finish)
    links = tuple((stage, _drawn(stage, random, height, width)) for stage in stages)
    return DrawnBatch(links, last)


def _drawn(stage: Stage, random: Random, height: int, width: int) -> Parameters:
    return {} if isinstance(stage, Finish) else stage.draw(random, height, width)


def _run_group(pixels: torch.Tensor, pointwise: bool, links: Sequence[Link]) -> torch.Tensor:
    if pointwise:
        return apply_chain(
            pixels, links, dtype=_dtype_after(pixels, links), memory_format=torch.preserve_format
        )
    for stage, drawn in links:
        assert not isinstance(stage, Finish)
        pixels = stage.apply(pixels, drawn)
    return pixels


def _dtype_after(pixels: torch.Tensor, links: Sequence[Link]) -> torch.dtype:
    makes_floats = any(isinstance(s, Finish) and s.kind == "float" for s, _ in links)
    return torch.float32 if makes_floats else pixels.dtype


def planes_of(pixels: torch.Tensor, kind: str) -> torch.Tensor:
    """[N, 3, H, W] of a batch as a `Finish` of this kind leaves it."""
    return pixels.permute(0, 3, 1, 2) if kind == "array" else pixels
