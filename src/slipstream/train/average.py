"""A moving average of a model's parameters."""

from typing import Any

import torch
from torch import nn

from slipstream.infer.subject import deep_copy
from slipstream.recurrent import gather_weights


class Average:
    """`model` is a copy whose parameters follow those of another by `decay`, and whose buffers are
    those of the other. It takes no part in autograd and is in evaluation mode.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._followed = model
        self.model = deep_copy(model).requires_grad_(False)
        self.model.eval()
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
        for average, other in self._others:
            average.copy_(other)
        copy_buffers(self.model, self._followed)

    def state_dict(self) -> dict[str, Any]:
        """Of the copy."""
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from an average that was saved, with buffers as large as they were then."""
        for name, buffer in dict(self.model.named_buffers()).items():
            if name in state and state[name].shape != buffer.shape:
                place, _, last = name.rpartition(".")
                self.model.get_submodule(place)._buffers[last] = buffer.new_empty(state[name].shape)
        self.model.load_state_dict(state)


def copy_buffers(average: Any, model: Any) -> None:
    """A model may have put other tensors in place of its buffers, of other shapes, or the first
    ones.
    """
    own, others = dict(average.named_buffers()), dict(model.named_buffers())
    for name in own.keys() | others.keys():
        one, other = own.get(name), others.get(name)
        if one is not None and other is not None and one.shape == other.shape:
            one.copy_(other)
        else:
            place, _, last = name.rpartition(".")
            kept = None if other is None else other.detach().clone()
            average.get_submodule(place)._buffers[last] = kept


def _has_fractions(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
