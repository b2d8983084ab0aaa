"""Whether copies of a model or an optimizer fit beside what the script has."""

from typing import Any

import torch

_MOST_ELEMENTS = 50_000_000  # on a processor, where each pass takes its time too
_BYTES = 16  # of an element, with its copies, gradient and states
_SHARE = 0.5  # of the memory that is free


def is_there_room(elements: int, device: Any) -> bool:
    """For copies with so many elements there."""
    if str(device) != "cuda":
        return elements <= _MOST_ELEMENTS
    free, _ = torch.cuda.mem_get_info()
    return elements * _BYTES <= _SHARE * (free + _cached())


def _cached() -> int:
    return torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
