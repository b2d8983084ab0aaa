"""What was found for a training step: choices, a table with a reason for each, and the code."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from slipstream.timing import Ratio
from slipstream.train.choices import Choices
from slipstream.train.code import code_of
from slipstream.train.curve import Curve
from slipstream.train.row import Row
from slipstream.train.step import LossFn, TrainStep


@dataclass(frozen=True)
class Recipe:
    """`choices` are those of the step as written where nothing is surely faster. `speed` is beside
    it. `print` shows the table.
    """

    choices: Choices
    written: Choices
    rows: tuple[Row, ...]
    speed: Ratio
    curve: Curve | None
    notes: tuple[str, ...]
    device: str

    @property
    def name(self) -> str:
        """Of what was chosen."""
        return self.choices.name if self.is_changed else "as written"

    @property
    def is_changed(self) -> bool:
        """Whether it is another step than the one as written."""
        return self.choices != self.written

    def apply(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: LossFn, **options: Any
    ) -> TrainStep:
        """The step, on a model and an optimizer that it may change. `options` are of `TrainStep`,
        such as `ema=0.999`, and come before what was chosen.
        """
        return TrainStep(model, optimizer, loss_fn, **{**self.choices.as_dict(), **options})

    def to_code(self) -> str:
        """The step as a program text with `make_step(model, optimizer, loss_fn)`, which needs
        torch and nothing else.
        """
        return code_of(self.choices, self.device)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "choices": self.choices.as_dict(),
            "speed": {"value": self.speed.value, "low": self.speed.low, "high": self.speed.high},
            "curve": None if self.curve is None else self.curve.as_dict(),
            "notes": list(self.notes),
            "rows": [row.as_dict() for row in self.rows],
        }

    def __str__(self) -> str:
        from slipstream.train.text import table_of

        return "\n".join([table_of(self.rows), "", *self.notes])
