"""Inference: the fastest variant of a model, of those that answer as it does."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def load(folder: "Path | str", model: "torch.nn.Module") -> "torch.nn.Module":
    """The variant of a model that `Optimized.save` has stored, built and judged again; the model
    itself, with a warning, where it would give other answers here.
    """
    from slipstream.infer.stored import load_optimized

    return load_optimized(folder, model)
