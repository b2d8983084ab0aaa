"""Channels side by side. These functions need torch alone: they are a part of the code that a
recipe gives away.
"""

from typing import Any

import torch


def lay_channels_last(model: Any, optimizer: Any) -> None:
    """Weights of four dimensions, and what an optimizer has kept for them, in place."""
    model.to(memory_format=torch.channels_last)
    for kept in optimizer.state.values():
        for name, value in kept.items():
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                kept[name] = value.contiguous(memory_format=torch.channels_last)


def with_channels_last(batch: Any) -> Any:
    """A batch whose pictures have their channels side by side."""
    if isinstance(batch, torch.Tensor):
        is_picture = batch.dim() == 4 and batch.is_floating_point()
        return batch.contiguous(memory_format=torch.channels_last) if is_picture else batch
    if isinstance(batch, dict):
        return {name: with_channels_last(value) for name, value in batch.items()}
    if not isinstance(batch, (list, tuple)):
        return batch
    values = [with_channels_last(value) for value in batch]
    return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
