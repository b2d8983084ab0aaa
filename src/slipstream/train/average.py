"""A moving average of a model's parameters."""

import copy
from typing import Any

import torch
from torch import nn

from slipstream.recurrent import gather_weights


class Average:
    """`model` is a copy whose parameters follow those of another by `decay`, and whose buffers are
    those of the other. It takes no part in autograd and is in evaluation mode.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._followed = model
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        gather_weights(self.model)
        pairs: list[tuple[torch.Tensor, torch.Tensor]]
        pairs = list(zip(self.model.parameters(), model.parameters(), strict=True))
        self._averaged = [pair for pair in pairs if _has_fractions(pair[0])]
        self._others = [pair for pair in pairs if not _has_fractions(pair[0])]

    @torch.no_grad()
    def update(self) -> None:
        """Follow by one step: `decay * average + (1 - decay) * parameter`."""
        if self._averaged:
            averages, parameters = zip(*self._averaged, strict=True)
            torch._foreach_lerp_(averages, parameters, 1 - self.decay)
        # A model may have put other tensors in place of its buffers.
        buffers = zip(self.model.buffers(), self._followed.buffers(), strict=True)
        for average, other in (*self._others, *buffers):
            average.copy_(other)

    def state_dict(self) -> dict[str, Any]:
        """Of the copy."""
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from an average that was saved."""
        self.model.load_state_dict(state)


def _has_fractions(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
