"""What a search has found: a model, and a table with a reason for every variant."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from slipstream.infer.change import Variant
from slipstream.infer.inputs import Inputs
from slipstream.infer.row import Row
from slipstream.infer.subject import Subject

INFERENCE_MODE = "inference-mode"  # a variant without changes


@dataclass
class Optimized:
    """`model` is the fastest variant, or the caller's own if none is surely faster. `print` shows
    the table.
    """

    model: torch.nn.Module
    variant: Variant
    rows: list[Row]
    subject: Subject
    also: tuple[Inputs, ...] = ()  # other shapes that have to work

    @property
    def name(self) -> str:
        """Of the variant."""
        if self.is_changed and not self.variant.changes:
            return INFERENCE_MODE
        return self.variant.name if self.is_changed else "eager"

    @property
    def is_changed(self) -> bool:
        """Whether `model` is another than the caller's."""
        return self.model is not self.subject.model

    @property
    def speed(self) -> Any:
        """How many times faster, with an interval."""
        state = "won" if self.is_changed else "model"
        return next(row.speed for row in self.rows if row.state == state)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"variant": self.name, "rows": [row.as_dict() for row in self.rows]}

    def save(self, folder: Path | str) -> None:
        """Store which variant it is. `slipstream.infer.load(folder, model)` builds it again."""
        from slipstream.infer.stored import save_optimized

        save_optimized(self, folder)

    def __str__(self) -> str:
        from slipstream.infer.text import table_of

        return table_of(self.rows)
