"""All that a training step changes, kept to be put back."""

import copy
from typing import Any

import torch

from slipstream.rng import Rng
from slipstream.train.step import TrainStep


class Snapshot:
    """Parameters, buffers and modes of a model, the state and the groups of its optimizer, scaler
    and average of the step, and all random states. `restore` puts them back in place, bit for bit,
    as often as it is asked to; gradients are gone behind it.
    """

    def __init__(self, step: TrainStep) -> None:
        self._step = step
        modules = list(step.model.modules())
        self._modes = [(module, module.training) for module in modules]
        self._places: list[tuple[dict[str, Any], str, torch.Tensor, torch.Tensor]] = [
            (held, name, tensor, tensor.detach().clone())
            for module in modules
            for held in (module._parameters, module._buffers)
            for name, tensor in held.items()
            if tensor is not None
        ]
        optimizer = step.optimizer
        self._groups = [
            {name: _cloned(value) for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        self._state = {
            parameter: {name: _cloned(value) for name, value in kept.items()}
            for parameter, kept in optimizer.state.items()
        }
        self._kept = copy.deepcopy(step.state_dict())
        self._rng = Rng()

    @torch.no_grad()
    def restore(self) -> None:
        """All as it was."""
        for held, name, tensor, value in self._places:
            held[name] = tensor  # a module may have put another in its place
            tensor.copy_(value)
            tensor.grad = None
        optimizer = self._step.optimizer
        for group, kept in zip(optimizer.param_groups, self._groups, strict=True):
            group.update({name: _cloned(value) for name, value in kept.items()})
        optimizer.state.clear()
        for parameter, state in self._state.items():
            optimizer.state[parameter] = {name: _cloned(value) for name, value in state.items()}
        self._step.load_state_dict(copy.deepcopy(self._kept))
        for module, mode in self._modes:
            module.training = mode
        self._rng.restore()


def _cloned(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
