"""Channels side by side. These functions need torch alone: they are a part of the code that a
recipe gives away.
"""

import copy
from typing import Any

import torch


def lay_like_parameters(optimizer: Any) -> None:
    """What an optimizer keeps for a parameter has its layout, also when it has loaded a checkpoint:
    a fused update takes that for granted, and is wrong without a word.
    """

    def lay(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                kept = optimizer.state.get(parameter, {})
                for name, value in kept.items():
                    is_like = isinstance(value, torch.Tensor) and value.shape == parameter.shape
                    if is_like and value.stride() != parameter.stride():
                        kept[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)

    # Wrappers of other libraries keep nothing themselves.
    if hasattr(optimizer, "state"):
        lay(optimizer)
        # Some are an `Optimizer` by name alone.
        if hasattr(optimizer, "_optimizer_load_state_dict_post_hooks"):
            optimizer.register_load_state_dict_post_hook(lay)


def lay_channels_last(model: Any, optimizer: Any) -> None:
    """Weights of four dimensions, their gradients, and what an optimizer has kept for them, in
    place.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
            if tensor.grad is not None:
                tensor.grad = tensor.grad.contiguous(memory_format=torch.channels_last)
    lay_like_parameters(optimizer)


def with_channels_last(batch: Any) -> Any:
    """A batch whose pictures have their channels side by side."""
    if isinstance(batch, torch.Tensor):
        is_picture = batch.dim() == 4 and batch.is_floating_point()
        return batch.contiguous(memory_format=torch.channels_last) if is_picture else batch
    if isinstance(batch, dict):
        made = copy.copy(batch)  # of its own class
        made.update({name: with_channels_last(value) for name, value in batch.items()})
        return made
    if not isinstance(batch, (list, tuple)):
        return batch
    values = [with_channels_last(value) for value in batch]
    return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
