"""Whether a variant gives back the memory that it takes, torch's or that of another runtime."""

import time
from collections.abc import Callable

import psutil
import torch

_MUCH_MB = 64.0
_AT_MOST_S = 3.0


def used_mb(device: torch.device) -> float:
    """By this process, on the device."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device) / 1e6
    return float(psutil.Process().memory_info().rss) / 1e6


def kept_by_calls(
    call: Callable[[], object], calls: int, grown_mb: float, device: torch.device
) -> str | None:
    """Why it leaks: memory grew by so much in so many calls, and it does so again. What only fills
    caches does that once.
    """
    if grown_mb < _MUCH_MB:
        return None
    before, done = used_mb(device), 0
    until = time.monotonic() + _AT_MOST_S
    while done < calls and time.monotonic() < until:
        call()
        done += 1
    again = used_mb(device) - before
    if again / done < 0.5 * grown_mb / calls:
        return None
    return f"keeps {again / done:.2g} MB more with each call"
